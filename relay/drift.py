"""Finds where a database's schema is no longer what the migrations build, whoever changed it."""

from dataclasses import dataclass

from relay.database import Database
from relay.migration import catalog
from relay.rows import Row

# Their definitions are digests, which tell a reader nothing.
_DIGESTED = frozenset({"function", "view"})


@dataclass(frozen=True, slots=True)
class Difference:
    """One thing of schema `outbox`, by kind and name: its definition as migrated and as found, None where it is not."""

    kind: str
    name: str
    wanted: str | None
    found: str | None

    @property
    def sentence(self) -> str:
        """What differs, in words."""
        thing = f"{self.kind} {self.name}"
        if self.found is None:
            return f"{thing} is missing" + ("" if self.kind in _DIGESTED else f": {self.wanted}")
        if self.wanted is None:
            return f"{thing} is not the relay's" + ("" if self.kind in _DIGESTED else f": {self.found}")
        if self.kind in _DIGESTED:
            return f"{thing} has another definition than this version's"
        return f"{thing} is `{self.found}`, not `{self.wanted}`"


async def drift(connections: Database) -> list[Difference]:
    """The differences of a database whose migrations are this version's, by kind and name. Needs no privilege."""
    _, rows = await connections.transact(("search_path", {}), ("catalog", {}))
    return differences(rows)


def differences(rows: list[Row]) -> list[Difference]:
    """The same, of the rows of relay/sql/catalog.sql."""
    found = {(str(kind), str(name)): str(definition) for kind, name, definition in rows}
    wanted = catalog()
    return [
        Difference(*thing, wanted.get(thing), found.get(thing))
        for thing in sorted(wanted.keys() | found.keys())
        if wanted.get(thing) != found.get(thing)
    ]
