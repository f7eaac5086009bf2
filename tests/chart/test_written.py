"""What of the chart is written from something else is up to date; `make chart-docs` writes it."""

import pytest
import yaml

from relay import __version__
from tests.chart import golden, table
from tests.chart.helm import CHART, Helm4
from tests.chart.matrix import MATRIX
from tests.chart.settings import SCHEMA, schema


def test_the_schema_of_values_knows_exactly_the_relays_settings() -> None:
    assert SCHEMA.read_text() == schema(), "run `make chart-docs`"


def test_the_table_of_values_is_that_of_the_comments() -> None:
    assert (CHART / "README.md").read_text() == table.readme(), "run `make chart-docs`"


def test_every_value_has_a_comment() -> None:
    assert table.undocumented() == []


def test_the_golden_render_is_what_the_chart_renders() -> None:
    assert golden.FILE.read_text() == golden.rendered(), "look at the difference, then run `make chart-docs`"


def test_the_chart_is_of_this_version_of_the_relay() -> None:
    about = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert (about["appVersion"], about["version"]) == (__version__, __version__)


@pytest.mark.parametrize("name", MATRIX)
def test_the_chart_lints_and_renders_with_helm_4(name: str) -> None:
    helm = Helm4()
    assert helm.lint(MATRIX[name]) == []
    assert helm.render(MATRIX[name])
