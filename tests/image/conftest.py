import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from relay import __version__
from tests.image.store import Store, missing_tools
from tests.pythons import pythons


@pytest.fixture(scope="session")
def store() -> Iterator[Store]:
    """The image, built from the Dockerfile."""
    assert not missing_tools(), f"apt-get install {' '.join(missing_tools())}"
    # Not one of Debian's: those are spread over /usr.
    prefix = next(
        Path(each.partition(" in ")[2]) for each in sorted(pythons(), reverse=True) if not each.endswith("/usr")
    )
    store = Store(Path(tempfile.mkdtemp(prefix="outbox-relay-image-")))
    try:
        store.build_base(prefix)
        store.build(VERSION=__version__, REVISION="0123abc", CREATED="2026-01-01T00:00:00Z")
        yield store
    finally:
        store.close()
