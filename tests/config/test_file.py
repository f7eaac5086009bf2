"""The file: where it is found, and what YAML itself can do wrong."""

from collections.abc import Callable
from pathlib import Path

import pytest

from relay.config import Settings, load
from relay.errors import ConfigError

Load = Callable[..., Settings]
Refused = Callable[..., list[str]]
DATABASE = {"RELAY_DATABASE_DSN": "postgresql:///app"}


def test_the_argument_wins_over_the_variable_for_the_path(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("log: {level: debug}")
    (tmp_path / "b.yaml").write_text("log: {level: error}")
    environ = DATABASE | {"RELAY_CONFIG": str(tmp_path / "b.yaml")}
    assert load(tmp_path / "a.yaml", environ).log.level == "debug"
    assert load(None, environ).log.level == "error"


def test_the_default_file_is_read_from_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("relay.yaml").write_text("log: {level: debug}")
    assert load(None, DATABASE).log.level == "debug"


def test_the_default_file_may_be_absent_when_the_environment_names_the_database(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    settings = load(None, DATABASE)
    assert settings.database.dsn.get_secret_value() == "postgresql:///app"
    assert settings.resolved_destinations() == ()


def test_a_file_that_was_named_must_exist(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nope\.yaml: cannot be read: No such file"):
        load(None, DATABASE | {"RELAY_CONFIG": str(tmp_path / "nope.yaml")})


def test_a_directory_is_no_configuration(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read: Is a directory"):
        load(tmp_path, DATABASE)


def test_an_empty_file_states_nothing(loaded: Load) -> None:
    assert loaded("# nothing\n").replica.lease_s == 60


def test_an_empty_group_states_nothing(loaded: Load) -> None:
    settings = loaded("defaults:\n  retry:\n  # base_s: 5\nlog:\n")
    assert settings.defaults.retry.base_s == 5


def test_a_byte_order_mark_is_no_part_of_the_file(loaded: Load) -> None:
    assert loaded(b"\xef\xbb\xbflog: {level: debug}").log.level == "debug"


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (b"log: \xff", "relay.yaml: not UTF-8 at byte 5; save it as UTF-8"),
        (
            "log:\n  level: info\nlog: {}",
            "relay.yaml:3: log: given again, first on line 1; remove one of the two",
        ),
        ("log: [1\nb: 2", "relay.yaml:2: not YAML: while parsing a flow sequence, expected ',' or ']', but got ':'"),
        ("log:\n  a: b: c", "relay.yaml:2: not YAML: mapping values are not allowed here"),
        ("- log", "relay.yaml: the file must be a mapping of settings, such as `destinations:`"),
        ("text", "relay.yaml: the file must be a mapping of settings, such as `destinations:`"),
        ("log: *nope", "relay.yaml:1: not YAML: found undefined alias 'nope'"),
        (
            "log: !local x",
            "relay.yaml:1: not YAML: could not determine a constructor for the tag '!local'",
        ),
        (
            "log: {}\n---\nlog: {}",
            "relay.yaml:2: not YAML: expected a single document in the stream, but found another document",
        ),
        (
            "log: !!int many",
            "relay.yaml: a number or date that cannot be read; quote it if it is text",
        ),
        (
            "destinations:\n  42:\n    url: x",
            'relay.yaml:2: destinations.42: a key must be text: put it in quotes, as in "42"',
        ),
        (
            "log:\n  true: info",
            'relay.yaml:2: log.true: a key must be text: put it in quotes, as in "true"',
        ),
        ("log: &a [*a]", "relay.yaml:1: aliases or nesting expand beyond 100000 values and 20 levels"),
        ("[" * 5000, "relay.yaml: nested too deeply; 20 levels are allowed"),
        (b"#" * (1 << 20) + b"#", "relay.yaml: over 1048576 bytes; this is not a relay configuration"),
    ],
    ids=lambda value: str(value)[:20],
)
def test_what_is_not_a_usable_document_is_refused_with_its_place(
    refused: Refused, text: str | bytes, line: str
) -> None:
    assert refused(text) == [line]


def test_aliases_that_expand_to_billions_of_values_are_refused(refused: Refused) -> None:
    bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n"
    for level in range(1, 12):
        bomb += f"a{level}: &a{level} [{', '.join([f'*a{level - 1}'] * 9)}]\n"
    [line] = refused(bomb)
    assert "expand beyond" in line


def test_anchors_and_merge_keys_work(loaded: Load) -> None:
    settings = loaded("""
        destinations:
          a: &common {url: 'https://a.example', topics: [x], signed: false, deadline_s: 9}
          b: {<<: *common, url: 'https://b.example'}
    """)
    assert [(d.url, d.deadline_s) for d in settings.destinations.values()] == [
        ("https://a.example", 9),
        ("https://b.example", 9),
    ]


def test_yaml_words_of_old_are_text_and_still_switch(loaded: Load) -> None:
    settings = loaded("replica: {notify: off}\ndatabase: {prepared_statements: no}")
    assert settings.replica.notify is False
    assert settings.database.prepared_statements is False


@pytest.mark.parametrize(("word", "shown"), [("no", "'no'"), ("false", "false"), ("drop", "'drop'")])
def test_on_dead_takes_only_its_own_words(refused: Refused, word: str, shown: str) -> None:
    assert refused(f"defaults:\n  on_dead: {word}") == [
        f"relay.yaml:2: defaults.on_dead: {shown}: must be 'block' or 'skip'"
    ]
