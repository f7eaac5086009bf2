"""Writes what of the chart is made from something else: definitions, the README's table, the golden render."""

from tests.chart import golden, table
from tests.chart.helm import CHART
from tests.chart.settings import SCHEMA, schema

SCHEMA.write_text(schema())
(CHART / "README.md").write_text(table.readme())
golden.FILE.write_text(golden.rendered())
