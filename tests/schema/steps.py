"""Migrations that this version does not have."""

from relay.migration import Migration, migrations

NAMES = [migration.name for migration in migrations()]


def following(sql: str, *, transactional: bool = True, name: str = "next") -> tuple[Migration, ...]:
    """This version's migrations and one more."""
    version = len(NAMES) + 1
    one = Migration(
        version, f"{version:04}_{name}", sql.encode(), old_replicas_may_run=True, transactional=transactional
    )
    return (*migrations(), one)
