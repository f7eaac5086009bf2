"""Secrets: read by reference, and shown nowhere."""

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from relay.config import Settings, load, reference, warnings
from relay.errors import ConfigError

Load = Callable[..., Settings]
Refused = Callable[..., list[str]]
SECRET = "whsec_" + "QUJD" * 8


@pytest.mark.parametrize("end", ["", "\n", "\r\n"])
def test_a_newline_at_the_end_of_a_mounted_secret_is_not_part_of_it(loaded: Load, tmp_path: Path, end: str) -> None:
    (tmp_path / "token").write_bytes(f"Bearer abc{end}".encode())
    (tmp_path / "secret").write_bytes(f"{SECRET}{end}".encode())
    (tmp_path / "dsn").write_bytes(f"postgresql://u:p@h/app{end}".encode())
    settings = loaded(f"""
        database: {{listen_dsn: {{file: {tmp_path}/dsn}}}}
        destinations:
          a:
            url: https://a.example
            secrets: [{{file: {tmp_path}/secret}}, {{env: S}}]
            headers: {{Authorization: {{file: {tmp_path}/token}}}}
    """)
    [destination] = settings.resolved_destinations()
    assert destination.secrets == (b"ABC" * 8, b"ABC" * 8)
    assert destination.headers == (("Authorization", "Bearer abc"),)
    assert settings.database.listen_dsn
    assert settings.database.listen_dsn.get_secret_value() == "postgresql://u:p@h/app"


def test_each_secret_that_cannot_be_read_has_a_line(refused: Refused, tmp_path: Path) -> None:
    (tmp_path / "empty").write_text("\n")
    (tmp_path / "latin").write_bytes(b"\xe9")
    lines = refused(
        f"""\
        destinations:
          a:
            url: https://a.example
            secrets:
              - env: NOPE
              - file: {tmp_path}/nope
              - file: {tmp_path}
              - file: {tmp_path}/empty
              - file: {tmp_path}/latin
              - file: "a\\0b"
              - env: SHORT
        """,
        SHORT="whsec_QUJD",
    )
    assert lines == [
        "relay.yaml:5: destinations.a.secrets[0]: environment variable NOPE is not set or empty",
        "relay.yaml:6: destinations.a.secrets[1]: file nope cannot be read: No such file or directory",
        f"relay.yaml:7: destinations.a.secrets[2]: file {tmp_path} cannot be read: Is a directory",
        "relay.yaml:8: destinations.a.secrets[3]: file empty is empty or larger than 65536 bytes",
        "relay.yaml:9: destinations.a.secrets[4]: file latin is not UTF-8 text",
        "relay.yaml:10: destinations.a.secrets[5]: file a\\x00b cannot be read: not a file name",
        "relay.yaml:11: destinations.a.secrets[6]: env SHORT: the signing secret holds 3 bytes; 24 to 64 are needed",
    ]


def test_commands_that_send_nothing_need_no_secret_of_a_destination(loaded: Load) -> None:
    settings = loaded("destinations: {a: {url: 'https://a.example', secrets: [{env: NOPE}]}}")
    assert settings.database.dsn.get_secret_value()
    assert warnings(settings) == []


def test_a_database_secret_that_cannot_be_read_is_refused_at_once(tmp_path: Path) -> None:
    (tmp_path / "relay.yaml").write_text("database: {dsn: {env: NOPE}}")
    with pytest.raises(ConfigError, match=r"yaml:1: database\.dsn: environment variable NOPE is not set or empty"):
        load(tmp_path / "relay.yaml", {})


def test_a_reference_that_a_variable_overrides_is_not_read(loaded: Load) -> None:
    settings = loaded("database: {dsn: {file: /nope}}", RELAY_DATABASE_DSN="postgresql:///app")
    assert settings.database.dsn.get_secret_value() == "postgresql:///app"


@pytest.mark.parametrize("dsn", ["postgresql://u:hunter2@h/app", "host=h password=hunter2"])
def test_a_password_in_the_file_is_refused_unseen(refused: Refused, dsn: str) -> None:
    [line] = refused(f"database: {{listen_dsn: '{dsn}'}}")
    assert line.startswith("relay.yaml:1: database.listen_dsn: holds a password; give it by reference")
    assert "hunter2" not in line


def test_a_header_may_be_called_like_a_reference(loaded: Load) -> None:
    text = "destinations: {a: {url: 'https://a.example', signed: false, headers: {env: staging}}}"
    assert loaded(text).resolved_destinations()[0].headers == (("env", "staging"),)


PLACES = [
    "destinations: {a: {url: 'https://x', secrets: [%s]}}",
    "destinations: {a: {url: 'https://x', secrets: %s}}",
    "destinations: {a: {url: 'https://x', secrets: [{env: %s}]}}",
    "destinations: {a: {url: 'https://x', secrets: [{file: %s}]}}",
    "destinations: {a: {url: 'https://x', secrets: [{file: {env: %s}}]}}",
    "destinations: {a: {url: 'https://x', secret: %s, signed: false}}",
    "destinations: {a: {url: 'https://x', signed: false, headers: {Authorization: %s}}}",
    "destinations: {a: {url: 'https://x', signed: false, headers: %s}}",
    "destinations: {a: {url: 'https://x', signed: false, proxy: 'http://u:%s@proxy'}}",
    "destinations: {a: {url: 'https://u:%s@x', signed: false}}",
    "destinations: {a: {url: '%s', signed: false}}",
    "destinations: {a: %s}",
    "destinations: %s",
    "database: %s",
    "database: {listen_dsn: [%s]}",
    "database: {pool_size: %s}",
    "database: {dsn: %s, dsn: b}",
    "log: {level: %s}",
    "database: {listen_dsn: 'postgresql://u:%s@h/d'}",
    "database: {dsn: postgresql://u:%s@h/d, log: [}",
    "%s: [",
]


@pytest.mark.parametrize("place", PLACES)
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(middle=st.text("ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789", min_size=32, max_size=60))
def test_a_secret_written_in_the_wrong_place_is_refused_unseen(tmp_path: Path, place: str, middle: str) -> None:
    secret = f"whsec_{middle}"
    (tmp_path / "relay.yaml").write_text(place % secret)
    with pytest.raises(ConfigError) as caught:
        load(tmp_path / "relay.yaml", {"RELAY_DATABASE_DSN": "postgresql:///app"}).resolved_destinations()
    assert middle not in str(caught.value)
    assert caught.value.__suppress_context__ or caught.value.__context__ is None


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.text("ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789", min_size=32, max_size=60))
def test_no_repr_shows_a_secret(tmp_path: Path, secret: str) -> None:
    (tmp_path / "relay.yaml").write_text("""
        database: {listen_dsn: {env: L}}
        defaults: {proxy: {env: P}}
        destinations:
          a:
            url: https://a.example/hook
            secrets: [{env: W}]
            headers: {Authorization: {env: H}}
    """)
    environ = {
        "RELAY_DATABASE_DSN": f"postgresql://u:{secret}@h/d",
        "L": f"host=h password={secret}",
        "P": f"http://u:{secret}@proxy",
        "W": "whsec_" + (secret[:32]),
        "H": f"Bearer {secret}",
    }
    loaded = load(tmp_path / "relay.yaml", environ)
    [destination] = loaded.resolved_destinations()
    assert dict(destination.headers)["Authorization"] == f"Bearer {secret}"
    shown = repr(loaded) + str(loaded) + repr(destination) + str(loaded.model_dump()) + reference()
    assert secret not in shown
    assert secret[:32] not in shown
    assert str(destination.secrets[0]) not in shown
