"""The relay's statements as PostgreSQL plans them: prepared, explained, and taken back."""

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Literal

import psycopg
from psycopg import sql
from psycopg.types.json import set_json_loads

from tests.store.jobs import statement

Mode = Literal["custom", "generic"]
Statistics = Literal["analysed", "never analysed", "analysed while empty"]
Plan = Mapping[str, Any]

# What is known of the table lies in these two catalogs; a rolled-back transaction may rewrite them.
_FORGET = """
DELETE FROM pg_catalog.pg_statistic
 WHERE starelid IN ('outbox.job'::regclass, 'outbox.attempt'::regclass, 'outbox.operation'::regclass);
UPDATE pg_catalog.pg_class c
   SET reltuples = {tuples}, relpages = CASE c.relkind WHEN 'i' THEN {index_pages} ELSE 0 END, relallvisible = 0
 WHERE c.oid IN (SELECT 'outbox.job'::regclass
                  UNION ALL
                 SELECT indexrelid FROM pg_catalog.pg_index WHERE indrelid = 'outbox.job'::regclass)
"""


_SETTINGS = {
    "lock_timeout": "2s",
    "statement_timeout": "30s",
    "transaction_timeout": "32s",
    "synchronous_commit": "off",
}


def numbered(name: str) -> tuple[str, list[str]]:
    """A statement with $1, $2 … for its named parameters, and the names in that order."""
    text = statement(name).decode()
    names = list(dict.fromkeys(re.findall(r"%\((\w+)\)s", text)))
    text = re.sub(r"%\((\w+)\)s", lambda match: f"${names.index(match[1]) + 1}", text)
    return text.replace("%%", "%"), names


class Planner:
    """One session; every statement is prepared once, and runs in a transaction like the relay's own."""

    def __init__(self, dsn: str) -> None:
        self._connection = psycopg.connect(dsn, autocommit=True, cursor_factory=psycopg.ClientCursor)
        set_json_loads(json.loads, self._connection)
        self._names: dict[str, list[str]] = {}

    def close(self) -> None:
        """Ends the session."""
        self._connection.close()

    @contextmanager
    def knowing(self, statistics: Statistics) -> Iterator[None]:
        """A transaction in which the planner knows this about the table; taken back at its end."""
        with self._connection.transaction(force_rollback=True):
            self._connection.execute(statement("transaction"), _SETTINGS)
            if statistics == "never analysed":
                self._connection.execute(_FORGET.format(tuples=-1, index_pages=0).encode())
            elif statistics == "analysed while empty":
                self._connection.execute(_FORGET.format(tuples=0, index_pages=1).encode())
            yield

    def fetch(self, query: str, *parameters: object) -> list[tuple[Any, ...]]:
        """The rows of any query."""
        return self._connection.execute(query.encode(), parameters or None).fetchall()

    def explain(self, name: str, parameters: Mapping[str, object], mode: Mode, *, analyze: bool = False) -> Plan:
        """The plan of one statement; with `analyze` it is executed, with its buffers."""
        if name not in self._names:
            text, self._names[name] = numbered(name)
            self._connection.execute(f"PREPARE {name} AS {text}".encode())
        self._connection.execute(f"SET plan_cache_mode = force_{mode}_plan".encode())
        values = [parameters[key] for key in self._names[name]]
        query = sql.SQL("EXPLAIN ({}FORMAT JSON) EXECUTE {}").format(
            sql.SQL("ANALYZE, BUFFERS, TIMING OFF, " if analyze else ""), sql.Identifier(name)
        )
        if values:
            query += sql.SQL("({})").format(sql.SQL(", ").join(map(sql.Literal, values)))
        [[[explained]]] = self._connection.execute(query).fetchall()
        plan: Plan = explained["Plan"]
        return plan


def nodes(plan: Plan) -> Iterator[Plan]:
    """A plan and everything below it."""
    yield plan
    for child in plan.get("Plans", []):
        yield from nodes(child)


def scanned(plan: Plan) -> set[str]:
    """The tables that are read from end to end."""
    return {node["Relation Name"] for node in nodes(plan) if node["Node Type"] == "Seq Scan"}


def indexes(plan: Plan) -> set[str]:
    """The indexes that are used."""
    return {node["Index Name"] for node in nodes(plan) if "Index Name" in node}


def buffers(plan: Plan) -> int:
    """How many pages were touched."""
    return int(plan["Shared Hit Blocks"]) + int(plan["Shared Read Blocks"])
