"""Django's page, and the schema as a migration of Django's."""

import asyncio
import contextlib
from pathlib import Path
from typing import Any

import django
import pytest
from django.conf import settings
from django.db import connections
from django.db.migrations.state import ProjectState
from psycopg.conninfo import conninfo_to_dict

from relay.demo.postgres import Postgres
from relay.migrate import compare, migrate, script
from tests.docs.pages import snippet
from tests.producers.story import CREATED, REFUSED, TRACEPARENT, assert_created, assert_paid
from tests.producers.test_pages import names


@pytest.fixture(scope="module")
def fresh(postgres: Postgres) -> str:
    """The DSN of a database without the schema."""
    return postgres.create_database("django")


@pytest.fixture(scope="module", autouse=True)
def _configured(_shop: str, fresh: str) -> None:
    settings.configure(DATABASES={"default": database(_shop) | {"USER": "shop"}, "fresh": database(fresh)})
    django.setup()


def database(dsn: str) -> dict[str, Any]:
    """A connection string as Django wants it."""
    parts = conninfo_to_dict(dsn)
    return {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": parts["dbname"],
        "USER": parts["user"],
        "HOST": parts["host"],
        "PORT": parts["port"],
    }


@pytest.mark.usefixtures("shop")
def test_django(shop_owner: str) -> None:
    page = names("django")
    try:
        job_id = page["pay"](42, "19.99", TRACEPARENT)
        with pytest.raises(django.db.Error, match=REFUSED):
            page["pay"](13, "19.99")
        assert_paid(shop_owner, job_id)
        page["create"](CREATED)
    finally:
        connections.close_all()
    assert_created(shop_owner)


async def test_django_migrates(fresh: str, tmp_path: Path) -> None:
    (tmp_path / "outbox.sql").write_text(script())
    page: dict[str, Any] = {"__file__": str(tmp_path / "0001_outbox.py"), "__name__": "0001_outbox"}
    exec(snippet("docs/schema.md", "django"), page)  # noqa: S102
    # Django refuses to be called where an event loop runs.
    await asyncio.to_thread(apply, page["Migration"])
    assert (await compare(fresh)).verdict == "same"
    assert await migrate(fresh) == []


def apply(migration: Any) -> None:
    """As `manage.py migrate` does it."""
    with contextlib.closing(connections["fresh"]) as connection, connection.schema_editor(atomic=True) as editor:
        migration("0001_outbox", "shop").apply(ProjectState(), editor)
