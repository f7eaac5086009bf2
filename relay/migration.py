"""The migrations as values: the files of `schema/`, and what a database that has some of them needs."""

import hashlib
import importlib.resources
import re
from dataclasses import dataclass
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Literal

from relay.errors import SchemaError

_HEADER = re.compile(r"^-- (old replicas|transaction): +(.*)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Migration:
    """One file of `schema/`. `transactional` false: each statement commits by itself (CREATE INDEX CONCURRENTLY)."""

    version: int
    name: str
    sql: bytes
    old_replicas_may_run: bool
    transactional: bool

    @property
    def checksum(self) -> str:
        """SHA-256 of the file, in hexadecimal."""
        return hashlib.sha256(self.sql).hexdigest()


@dataclass(frozen=True, slots=True)
class Comparison:
    """How a database's schema differs from this version's. `verdict` is `same` when nothing does."""

    verdict: Literal["same", "missing", "behind", "ahead", "changed"]
    sentence: str
    usable: bool


def migrations(folder: Traversable | None = None) -> tuple[Migration, ...]:
    """Every migration of this version in order of its number.

    Raises SchemaError when a file's name or header is not as CONTRIBUTING.md asks.
    """
    folder = folder or _folder()
    files = sorted((f for f in folder.iterdir() if f.name.endswith(".sql")), key=lambda f: f.name)
    found = tuple(_parse(file.name, file.read_bytes()) for file in files)
    if [m.version for m in found] != list(range(1, len(found) + 1)):
        raise SchemaError(f"migrations must be numbered 1 to n without a gap, found {[m.name for m in found]}")
    return found


def catalog() -> dict[tuple[str, str], str]:
    """What the migrations build: the definition of each thing by its kind and name, as relay/sql/catalog.sql has it."""
    lines = (_folder() / "catalog.txt").read_text().splitlines()
    return {(kind, name): definition for kind, name, definition in (line.split("\t") for line in lines)}


def _folder() -> Traversable:
    # A wheel carries the files inside the package; in a checkout they stand beside it.
    packaged = importlib.resources.files("relay") / "_schema"
    return packaged if packaged.is_dir() else Path(__file__).parent.parent / "schema"


def _parse(name: str, sql: bytes) -> Migration:
    number = re.match(r"^(\d{4})_[a-z_]+\.sql$", name)
    header = dict(_HEADER.findall(sql.decode()))
    if number is None or header.get("transaction") not in {"one", "none"}:
        raise SchemaError(f"{name}: wants a name like 0007_word.sql and a header line '-- transaction: one' or 'none'")
    if header.get("old replicas") not in {"may run", "must stop"}:
        raise SchemaError(f"{name}: wants a header line '-- old replicas: may run' or 'must stop'")
    return Migration(
        version=int(number[1]),
        name=name.removesuffix(".sql"),
        sql=sql,
        old_replicas_may_run=header["old replicas"] == "may run",
        transactional=header["transaction"] == "one",
    )


def judge(rows: list[tuple[int, str, str, bool]], wanted: tuple[Migration, ...]) -> Comparison:
    """What the recorded migrations (version, name, checksum, old_replicas_may_run) mean for this version."""
    known = {m.version: m for m in wanted}
    changed = [name for version, name, checksum, _ in rows if version in known and known[version].checksum != checksum]
    if changed:
        return Comparison(
            "changed",
            f"{', '.join(changed)}: the database was migrated with a different text of this file; "
            "a migration is never edited after its release, write a new one",
            usable=False,
        )
    newer = [(name, may_run) for version, name, _, may_run in rows if version not in known]
    if newer:
        usable = all(may_run for _, may_run in newer)
        return Comparison(
            "ahead",
            f"the database has {newer[-1][0]}, this version knows migrations up to {wanted[-1].name}; "
            + ("this version may still run against it" if usable else "upgrade this replica before it can run"),
            usable=usable,
        )
    missing = [m.name for m in wanted if m.version not in {row[0] for row in rows}]
    if missing:
        return Comparison("behind", f"missing migrations: {', '.join(missing)}; run `relay migrate`", usable=False)
    return Comparison("same", f"the schema is at {wanted[-1].name}", usable=True)
