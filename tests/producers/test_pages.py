"""The producers' pages that need no more than what is installed to develop: Python's and psql's."""

import subprocess
from typing import Any

import asyncpg
import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict
from sqlalchemy import create_engine
from sqlalchemy.orm import Session

from relay.demo.postgres import find_binaries
from tests.docs.pages import blocks
from tests.producers.story import CREATED, REFUSED, TRACEPARENT, assert_created, assert_paid, jobs


def names(page: str) -> dict[str, Any]:
    """What the Python of a page defines."""
    found: dict[str, Any] = {"__name__": page}
    exec("\n".join(blocks(f"docs/producers/{page}.md", "python")), found)  # noqa: S102
    return found


def url(dsn: str, scheme: str) -> str:
    """A connection string as other drivers read it."""
    parts = conninfo_to_dict(dsn)
    return f"{scheme}://{parts['user']}@{parts['host']}:{parts['port']}/{parts['dbname']}"


def psql(dsn: str, script: str) -> subprocess.CompletedProcess[str]:
    """Run a script as a person would, stopping at the first error."""
    command = [str(find_binaries() / "psql"), "-X", "-q", "-v", "ON_ERROR_STOP=1", "-d", dsn]
    return subprocess.run(command, input=script, capture_output=True, text=True, check=False, env={"PATH": ""})


def test_psql(shop: str, shop_owner: str) -> None:
    pay, *create = blocks("docs/producers/psql.md", "sql")
    done = psql(shop, pay)
    assert done.returncode == 0, done.stderr
    refused = psql(shop, pay.replace("42", "13"))
    assert REFUSED in refused.stderr
    assert_paid(shop_owner, done.stdout.split()[2])
    for each in create:
        done = psql(shop, each)
        assert done.returncode == 0, done.stderr
    assert_created(shop_owner)


def test_psycopg(shop: str, shop_owner: str) -> None:
    page = names("psycopg")
    with psycopg.connect(shop, autocommit=True) as connection:
        job_id = page["pay"](connection, 42, "19.99", TRACEPARENT)
        with pytest.raises(psycopg.errors.RaiseException, match=REFUSED):
            page["pay"](connection, 13, "19.99")
        assert_paid(shop_owner, job_id)
        page["create"](connection, CREATED)
    assert_created(shop_owner)


async def test_asyncpg(shop: str, shop_owner: str) -> None:
    page = names("asyncpg")
    connection = await asyncpg.connect(url(shop, "postgresql"))
    try:
        job_id = await page["pay"](connection, 42, "19.99", TRACEPARENT)
        with pytest.raises(asyncpg.exceptions.RaiseError, match=REFUSED):
            await page["pay"](connection, 13, "19.99")
        assert_paid(shop_owner, job_id)
        await page["create"](connection, CREATED)
    finally:
        await connection.close()
    assert_created(shop_owner)


def test_sqlalchemy_core(shop: str, shop_owner: str) -> None:
    page = names("sqlalchemy")
    engine = create_engine(url(shop, "postgresql+psycopg"))
    with engine.begin() as connection:
        job_id = page["pay_core"](connection, 42, "19.99", TRACEPARENT)
    with pytest.raises(Exception, match=REFUSED), engine.begin() as connection:
        page["pay_core"](connection, 13, "19.99")
    assert_paid(shop_owner, job_id)
    with engine.begin() as connection:
        page["create_core"](connection, CREATED)
    engine.dispose()
    assert_created(shop_owner)


@pytest.fixture
def orm() -> dict[str, Any]:
    """The page of SQLAlchemy without its listener."""
    page = names("sqlalchemy")
    page["event"].remove(Session, "after_flush", page["announce"])
    return page


def test_sqlalchemy_orm(shop: str, shop_owner: str, orm: dict[str, Any]) -> None:
    engine = create_engine(url(shop, "postgresql+psycopg"))
    with Session(engine) as session, session.begin():
        job_id = orm["pay"](session, 42, "19.99", TRACEPARENT)
    with pytest.raises(Exception, match=REFUSED), Session(engine) as session, session.begin():
        orm["pay"](session, 13, "19.99")
    assert_paid(shop_owner, job_id)
    with Session(engine) as session, session.begin():
        orm["create"](session, CREATED)
    engine.dispose()
    assert_created(shop_owner)


def test_sqlalchemy_session_events(shop: str, shop_owner: str, orm: dict[str, Any]) -> None:
    engine = create_engine(url(shop, "postgresql+psycopg"))
    orm["event"].listen(Session, "after_flush", orm["announce"])
    try:
        with Session(engine) as session, session.begin():
            session.get_one(orm["Order"], 42).status = "paid"
            session.add_all(orm["Order"](id=order, status="new") for order in reversed(CREATED))
        with pytest.raises(Exception, match=REFUSED), Session(engine) as session, session.begin():
            session.get_one(orm["Order"], 13).status = "paid"
    finally:
        orm["event"].remove(Session, "after_flush", orm["announce"])
        engine.dispose()
    assert [(job[1], job[2], job[3]) for job in jobs(shop_owner) if job[0] == "billing"] == [
        *(("order.created", f"order-{order}", f'{{"order_id": {order}}}') for order in CREATED),
        ("order.changed", "order-42", '{"order_id": 42}'),
    ]


def test_triggers(shop: str, shop_owner: str) -> None:
    [trigger] = blocks("docs/producers/triggers.md", "sql")
    changes = """
        BEGIN; SET LOCAL outbox.traceparent = 'TRACEPARENT'; UPDATE orders SET status = 'paid' WHERE id = 42; COMMIT;
        UPDATE orders SET status = 'paid' WHERE id = 42;
        INSERT INTO orders VALUES (1001, 'new');
        DELETE FROM orders WHERE id = 1001;
        BEGIN; UPDATE orders SET status = 'shipped'; ROLLBACK;
        UPDATE orders SET status = 'paid' WHERE id = 13;
    """
    done = psql(shop, trigger + changes.replace("TRACEPARENT", TRACEPARENT))
    assert REFUSED in done.stderr
    assert [job[1:] for job in jobs(shop_owner) if job[0] == "search"] == [
        ("order.paid", "order-42", '{"order_id" : 42, "status" : "paid"}', TRACEPARENT),
        ("order.created", "order-1001", '{"order_id" : 1001, "status" : "new"}', None),
        ("order.deleted", "order-1001", '{"order_id" : 1001, "status" : "new"}', None),
    ]


def test_the_rule_of_order_is_asserted(shop: str) -> None:
    done = psql(shop, "INSERT INTO outbox.job (topic, entity_key, payload) VALUES ('order.paid', 'order-42', '{}')")
    assert "order-42 is not locked" in done.stderr
