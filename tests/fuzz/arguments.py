"""Command lines: usage, a sentence and an exit code of the table in relay.cli, and never a traceback."""

import json
import os
import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import click
import psycopg
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from relay.cli import main
from relay.demo.nest import Nest
from relay.demo.postgres import Postgres
from tests.fuzz.case import SECRET, Check, came_to, texts

# They do not end by themselves.
_ENDLESS = {"run", "demo"}


def _verbs(group: click.Group, before: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            yield from _verbs(command, (*before, name))
        elif name not in _ENDLESS:
            yield (*before, name), command


_VERBS = dict(_verbs(main))
# What a process can be given: no NUL, and what is not UTF-8 as Python hands it on.
_argument = st.one_of(
    texts.map(lambda text: text.replace("\0", "").encode("utf-8", "replace").decode()),
    st.binary(max_size=9).map(os.fsdecode),
).filter(lambda text: "\0" not in text)
_value = st.one_of(
    _argument,
    st.integers(-1, 9).map(str),
    st.sampled_from(["billing", "order.*", "2h", "999999d", "2026-01-31", "0001-01-01", "9999-12-31T23:59:59Z"]),
)


_environment = st.one_of(*[st.just({})] * 5, st.fixed_dictionaries({"RELAY_DATABASE_DSN": _argument}))


@st.composite
def _line(draw: st.DrawFn) -> list[str]:
    """A verb with its words and some of its options; seldom what it does not know."""
    verb = draw(st.sampled_from(sorted(_VERBS)))
    words = list(verb)
    for parameter in _VERBS[verb].params:
        if isinstance(parameter, click.Argument):
            words.append(draw(_value))
        elif draw(st.integers(0, 3)) == 0:
            words += [parameter.opts[0]] if getattr(parameter, "is_flag", False) else [parameter.opts[0], draw(_value)]
    return words + draw(st.sampled_from([[]] * 9 + [["--nonsense"]]) | st.lists(_argument, max_size=1))


@contextmanager
def opened() -> Iterator[Check]:
    """A database with the schema, a configuration, and one that leads nowhere."""
    with Nest() as nest, Postgres(nest, tcp=True, options={"fsync": "off"}) as postgres:
        dsn = postgres.create_database("fuzz")
        file = nest.path / "relay.yaml"
        hook = {"url": "http://127.0.0.1:9/", "signed": False, "topics": ["*"], "headers": {"X-A": {"env": "TOKEN"}}}
        file.write_text(json.dumps({"destinations": {"billing": hook}}))
        runner = CliRunner()
        usual = {"RELAY_CONFIG": str(file), "RELAY_DATABASE_DSN": f"{dsn}?password={SECRET}", "TOKEN": SECRET}
        before = signal.getsignal(signal.SIGTERM)
        assert runner.invoke(main, ["migrate"], env=usual).exit_code == 0
        with psycopg.connect(dsn, autocommit=True) as owner:
            owner.execute("INSERT INTO outbox.job (topic, destination, payload) VALUES ('t', 'billing', '{}')")

            @given(_line(), _environment)
            def check(words: list[str], environment: Mapping[str, str]) -> None:
                done = runner.invoke(main, words, env={**usual, **environment})
                came_to(f"code {done.exit_code}")
                assert done.exception is None or isinstance(done.exception, SystemExit), done.exc_info
                assert 0 <= done.exit_code <= 5
                assert SECRET not in done.output
                assert done.exit_code in (0, 1) or done.output.strip(), "no sentence"

            yield check
        signal.signal(signal.SIGTERM, before)
