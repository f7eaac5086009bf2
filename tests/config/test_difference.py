"""What a configuration that is read again changes: key paths, and never a value."""

from pathlib import Path

import pytest

from relay.config.content import digest
from relay.config.difference import Configuration, difference, live, needs_restart
from relay.errors import ConfigError
from tests.config.conftest import SECRET, Load

PLAIN = """
replica: {lease_s: 60}
defaults: {deadline_s: 10, headers: {X-All: a}}
destinations:
  a: {url: https://a.example/, secrets: [{env: S}]}
  b: {url: https://b.example/, secrets: [{env: S}], rate_per_s: 5}
"""


def configuration(load: Load, text: str, **environ: str) -> Configuration:
    """What is in use when this is loaded."""
    settings = load(text, **environ)
    return Configuration(settings, settings.resolved_destinations())


@pytest.mark.parametrize(
    ("old", "new", "paths"),
    [
        ("lease_s: 60", "lease_s: 61", ["replica.lease_s"]),
        ("rate_per_s: 5", "rate_per_s: 6", ["destinations.b.rate_per_s"]),
        (", rate_per_s: 5", "", ["destinations.b.rate_per_s"]),
        ("deadline_s: 10", "deadline_s: 11", ["defaults.deadline_s"]),
        ("X-All: a", "X-All: a, X-More: b", ["defaults.headers.X-More"]),
        ("rate_per_s: 5", "rate_per_s: 5, headers: {X-All: c}", ["destinations.b.headers.X-All"]),
        ("rate_per_s: 5", "rate_per_s: 5, retry: {base_s: 7}", ["destinations.b.retry.base_s"]),
        ("  a:", "  c:", ["destinations.a", "destinations.c"]),
        ("{lease_s: 60}", "{lease_s: 60.0}  # a remark", []),
    ],
)
def test_a_change_is_named_where_it_is_written(loaded: Load, old: str, new: str, paths: list[str]) -> None:
    before = configuration(loaded, PLAIN)
    assert difference(before, configuration(loaded, PLAIN.replace(old, new))) == paths


def test_a_rotated_secret_is_named_and_not_shown(loaded: Load) -> None:
    rotated = configuration(loaded, PLAIN, S="whsec_" + "REVG" * 8, RELAY_DATABASE_DSN="postgresql://relay:new@db/app")
    assert difference(configuration(loaded, PLAIN), rotated) == [
        "database.dsn",
        "destinations.a.secrets",
        "destinations.b.secrets",
    ]


def test_a_certificate_replaced_in_its_place_is_a_change(loaded: Load, tmp_path: Path) -> None:
    file = tmp_path / "ca.pem"
    text = PLAIN.replace("rate_per_s: 5", f"tls: {{ca_file: {file}}}")
    file.write_text("one")
    before = configuration(loaded, text)
    seen = digest(before.settings.files())
    file.write_text("two")
    assert difference(before, configuration(loaded, text)) == ["destinations.b.tls.ca_file"]
    assert digest(before.settings.files()) != seen


def test_every_file_that_is_named_is_looked_at(loaded: Load, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text(SECRET)
    (tmp_path / "key").write_text("key")
    settings = loaded(
        PLAIN.replace("{env: S}", f"{{file: {tmp_path}/secret}}").replace(
            "{deadline_s: 10", f"{{tls: {{client_certificate_file: {tmp_path}/key}}, deadline_s: 10"
        )
    )
    assert settings.files() == {f"{tmp_path}/{name}" for name in ("relay.yaml", "secret", "key")}


def test_a_file_that_appears_changes_the_digest(tmp_path: Path) -> None:
    late = tmp_path / "late"
    before = digest([str(late)])
    late.write_text("")
    assert digest([str(late)]) != before


def test_database_replica_and_web_stay_as_they_were_at_the_start(loaded: Load) -> None:
    running = loaded(PLAIN)
    wanted = loaded(PLAIN.replace("lease_s: 60", "lease_s: 90") + "web: {port: 8080}\nretention: {done_s: 9}\n")
    assert needs_restart(running, wanted) == ["replica.lease_s", "web.port"]
    used = live(wanted, running)
    assert (used.replica.lease_s, used.web.port, used.retention.done_s) == (60, 0, 9)


def test_what_only_a_restart_would_make_right_is_refused(loaded: Load) -> None:
    running = loaded(PLAIN)
    wanted = loaded(
        PLAIN.replace("lease_s: 60", "lease_s: 90, drain_s: 80, termination_grace_s: 99").replace(
            "deadline_s: 10", "deadline_s: 70"
        )
    )
    with pytest.raises(
        ConfigError, match=r"defaults\.deadline_s: 70 s \+ 5 s must be less than replica\.lease_s, 60 s"
    ):
        live(wanted, running)
