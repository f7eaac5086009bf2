import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from relay import __version__
from tests.image.store import Store, missing
from tests.pythons import pythons


@pytest.fixture(scope="session")
def store() -> Iterator[Store]:
    """The image, built from the Dockerfile."""
    with tempfile.TemporaryDirectory(prefix="outbox-relay-image-") as folder:
        assert missing(Path(folder)) == []
    # Debian's is spread over /usr.
    prefixes = [Path(each.partition(" in ")[2]) for each in sorted(pythons(), reverse=True)]
    self_contained = [prefix for prefix in prefixes if prefix != Path("/usr")]
    assert self_contained, "install a Python >= 3.11 outside /usr: the image's is copied from it"
    store = Store(Path(tempfile.mkdtemp(prefix="outbox-relay-image-")))
    try:
        store.build_base(self_contained[0])
        store.build(VERSION=__version__, REVISION="0123abc", CREATED="2026-01-01T00:00:00Z")
        yield store
    finally:
        store.close()
