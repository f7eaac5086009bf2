"""`make chart-test`: what the chart renders with the engines of Helm 3 and 4 for a matrix of values."""

import pytest

from tests.chart.helm import Engine
from tests.chart.matrix import MATRIX
from tests.chart.valid import VERSIONS, faults

pytestmark = pytest.mark.parametrize("row", MATRIX)


def test_lint_finds_nothing(engine: Engine, row: str) -> None:
    assert engine.lint(MATRIX[row]) == []


def test_helm_3_and_helm_4_render_the_same(engines: dict[str, Engine], row: str) -> None:
    assert engines["3"].render(MATRIX[row]) == engines["4"].render(MATRIX[row])


def test_no_two_objects_have_the_same_kind_and_name(engine: Engine, row: str) -> None:
    rendered = engine.render(MATRIX[row])
    assert len({(each["kind"], each["metadata"]["name"]) for each in rendered}) == len(rendered)


@pytest.mark.parametrize("version", VERSIONS)
def test_every_object_passes_the_strict_schema_of(version: str, engines: dict[str, Engine], row: str) -> None:
    found = {
        f"{each['kind']} {each['metadata']['name']}": faults(each, version) for each in engines["4"].render(MATRIX[row])
    }
    assert {name: each for name, each in found.items() if each} == {}
