"""Replicas on the tests' database, under a role of their own; as processes where nothing less shows a situation."""

from pathlib import Path

import psycopg
import pytest

from tests.service.conftest import installation
from tests.service.replica import Installation
from tests.store.conftest import jobs, open_database, other, replica, store

__all__ = ["installation", "jobs", "open_database", "other", "replica", "store"]


@pytest.fixture(scope="session")
def _roles(migrated: str) -> None:
    with psycopg.connect(migrated, autocommit=True) as connection:
        connection.execute("CREATE ROLE relay_order LOGIN IN ROLE outbox_relay")


@pytest.fixture
def role() -> str:
    """What the store's fixtures log in as, after `relay_`."""
    return "order"


@pytest.fixture
def astray(tmp_path: Path, installation: Installation) -> Installation:
    """Processes whose wall clock is a day ahead."""
    (tmp_path / "sitecustomize.py").write_text("import time\nright = time.time\ntime.time = lambda: right() + 86400\n")
    installation.environment["PYTHONPATH"] = f"{tmp_path}:{installation.environment['PYTHONPATH']}"
    return installation
