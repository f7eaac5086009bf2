"""How a database's schema and this version's files differ, and files that cannot be used."""

from pathlib import Path

import pytest

from relay.errors import SchemaError
from relay.migrate import compare, migrate
from relay.migration import migrations
from tests.schema.rows import connected, value
from tests.schema.steps import NAMES, following


async def test_compare_says_that_there_is_no_schema(new_database: str) -> None:
    found = await compare(new_database)
    assert (found.verdict, found.usable) == ("missing", False)
    assert "relay migrate" in found.sentence


async def test_compare_changes_nothing(new_database: str) -> None:
    await compare(new_database)
    async with connected(new_database) as connection:
        assert await value(connection, "SELECT to_regnamespace('outbox') IS NULL")


async def test_compare_names_what_is_missing(new_database: str) -> None:
    await migrate(new_database, migrations()[:2])
    found = await compare(new_database)
    assert (found.verdict, found.usable) == ("behind", False)
    assert all(name in found.sentence for name in NAMES[2:])


async def test_a_changed_file_is_refused_by_name(copy: str) -> None:
    async with connected(copy) as connection:
        await connection.execute("UPDATE outbox.migration SET checksum = 'other' WHERE version = 2")
    found = await compare(copy)
    assert (found.verdict, found.usable) == ("changed", False)
    with pytest.raises(SchemaError, match=NAMES[1]):
        await migrate(copy, following("CREATE TABLE outbox.extra ();"))
    async with connected(copy) as connection:
        assert await value(connection, "SELECT to_regclass('outbox.extra') IS NULL")


@pytest.mark.parametrize("may_run", [True, False], ids=["usable", "not usable"])
async def test_a_newer_schema_says_itself_whether_an_older_version_may_run(
    copy: str, may_run: bool  # noqa: FBT001
) -> None:  # fmt: skip
    async with connected(copy) as connection:
        await connection.execute(
            "INSERT INTO outbox.migration (version, name, checksum, old_replicas_may_run)"
            " VALUES (98, '0098_harmless', 'x', true), (99, '0099_newer', 'x', %s)",
            [may_run],
        )
    found = await compare(copy)
    assert (found.verdict, found.usable) == ("ahead", may_run)
    assert "0099_newer" in found.sentence
    assert NAMES[-1] in found.sentence


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("1_job.sql", "-- old replicas: may run\n-- transaction: one\n", "1_job.sql"),
        ("0001_job.sql", "-- old replicas: may run\n", "transaction: one"),
        ("0001_job.sql", "-- old replicas: perhaps\n-- transaction: one\n", "old replicas"),
        ("0002_job.sql", "-- old replicas: may run\n-- transaction: none\n", "without a gap"),
    ],
)
def test_a_file_with_a_wrong_name_or_header_is_refused(tmp_path: Path, name: str, text: str, message: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(SchemaError, match=message):
        migrations(tmp_path)


def test_a_header_says_how_a_file_is_applied(tmp_path: Path) -> None:
    (tmp_path / "0001_a.sql").write_text("-- old replicas: must stop\n-- transaction: none\n")
    (tmp_path / "0002_b.sql").write_text("-- old replicas: may run\n-- transaction:  one\n")
    (tmp_path / "README.md").write_text("")
    found = [(m.version, m.name, m.old_replicas_may_run, m.transactional) for m in migrations(tmp_path)]
    assert found == [(1, "0001_a", False, False), (2, "0002_b", True, True)]
