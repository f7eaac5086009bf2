"""What the chart makes of one destination, kept for reviewers to see what a change of it changes."""

import yaml

from tests.chart.helm import ROOT, Helm4
from tests.chart.matrix import MATRIX

FILE = ROOT / "tests/chart/golden.yaml"


def rendered() -> str:
    """Every object, by kind and name."""
    return yaml.safe_dump_all(Helm4().render(MATRIX["one destination"]), sort_keys=False, width=120)
