"""The environment: what it overrides, and which names are refused."""

from collections.abc import Callable
from pathlib import Path

import pytest

import relay
from relay.config import Settings, load
from relay.errors import ConfigError

Load = Callable[..., Settings]
Refused = Callable[..., list[str]]


def test_the_environment_wins_over_the_file_and_the_file_over_the_default(loaded: Load) -> None:
    settings = loaded("replica: {poll_s: 2, lease_s: 70}", RELAY_REPLICA_LEASE_S="80")
    assert (settings.replica.lease_s, settings.replica.poll_s, settings.replica.drain_s) == (80, 2, 25)


def test_a_variable_of_a_default_reaches_every_destination_that_does_not_state_the_key(loaded: Load) -> None:
    settings = loaded(
        """
        destinations:
          a: {url: 'https://a.example', signed: false}
          b: {url: 'https://b.example', signed: false, deadline_s: 7}
        """,
        RELAY_DEFAULTS_DEADLINE_S="11",
    )
    assert [each.deadline_s for each in settings.resolved_destinations()] == [11, 7]


def test_a_variable_of_a_list_or_mapping_is_json_and_sets_the_whole_key(loaded: Load) -> None:
    settings = loaded(
        "defaults: {retry: {base_s: 9}}",
        RELAY_DEFAULTS_PERMANENT_STATUSES="[400, 422]",
        RELAY_DEFAULTS_EGRESS='["10.0.0.0/8"]',
        RELAY_DEFAULTS_RETRY='{"max_attempts": 3}',
    )
    assert settings.defaults.permanent_statuses == {400, 422}
    assert settings.defaults.egress == ("10.0.0.0/8",)
    assert (settings.defaults.retry.max_attempts, settings.defaults.retry.base_s) == (3, 5)


def test_a_variable_that_is_not_json_where_a_mapping_is_needed_is_refused(refused: Refused) -> None:
    assert refused("", RELAY_DEFAULTS_RETRY="{3") == [
        "RELAY_DEFAULTS_RETRY: defaults.retry: is text; must be a mapping"
    ]


def test_an_empty_variable_is_not_set(loaded: Load) -> None:
    assert loaded("log: {level: debug}", RELAY_LOG_LEVEL="").log.level == "debug"


def test_a_group_that_is_no_mapping_is_refused_though_a_variable_sets_a_key_of_it(refused: Refused) -> None:
    assert refused("log: loud", RELAY_LOG_LEVEL="info")[0].endswith("log: is text; must be a mapping")


def test_a_wrong_value_is_blamed_on_its_variable(refused: Refused) -> None:
    assert refused("database: {pool_size: 9}", RELAY_DATABASE_POOL_SIZE="1") == [
        "RELAY_DATABASE_POOL_SIZE: database.pool_size: '1': must be greater than or equal to 2"
    ]


def test_a_misspelt_variable_is_refused_with_the_nearest_name(refused: Refused) -> None:
    assert refused("", RELAY_DATABSE_DSN="x") == [
        "RELAY_DATABSE_DSN: unknown variable; did you mean RELAY_DATABASE_DSN?"
    ]


@pytest.mark.parametrize("name", ["RELAY_FOO", "RELAY_DESTINATIONS"])
def test_a_variable_like_no_setting_is_refused(refused: Refused, name: str) -> None:
    assert refused("", **{name: "{}"}) == [f"{name}: unknown variable; no setting has this name; unset it"]


def test_a_relay_variable_that_the_file_refers_to_is_known(loaded: Load) -> None:
    text = "destinations: {a: {url: 'https://a.example', secrets: [{env: RELAY_BILLING}]}}"
    assert loaded(text, RELAY_BILLING="whsec_" + "QUJD" * 8).resolved_destinations()[0].secrets == (b"ABC" * 8,)


def test_variables_that_kubernetes_sets_for_a_service_named_relay_are_let_be(loaded: Load) -> None:
    loaded(
        "",
        RELAY_SERVICE_HOST="10.0.0.1",
        RELAY_SERVICE_PORT="80",
        RELAY_SERVICE_PORT_HTTP="80",
        RELAY_PORT="tcp://10.0.0.1:80",
        RELAY_PORT_80_TCP="tcp://10.0.0.1:80",
        RELAY_PORT_80_TCP_ADDR="10.0.0.1",
        RELAY_METRICS_SERVICE_HOST="10.0.0.2",
    )


def test_a_service_whose_link_has_the_name_of_a_setting_does_not_set_it(loaded: Load) -> None:
    assert loaded("web: {port: 9000}", RELAY_WEB_PORT="tcp://10.0.0.1:80").web.port == 9000


def test_a_missing_database_is_told_with_the_ways_to_name_it(tmp_path: Path) -> None:
    file = tmp_path / "relay.yaml"
    file.write_text("")
    with pytest.raises(ConfigError, match=r"database\.dsn: not set: set RELAY_DATABASE_DSN, or this key to"):
        load(file, {})


def test_the_process_environment_is_the_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RELAY_DATABASE_DSN", "postgresql:///from-process")
    assert load().database.dsn.get_secret_value() == "postgresql:///from-process"


def test_settings_themselves_never_read_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RELAY_REPLICA_LEASE_S", "1234")
    assert Settings.model_validate({"database": {"dsn": "postgresql:///app"}}).replica.lease_s == 60


def test_only_the_configuration_reads_the_environment() -> None:
    folder = Path(relay.__file__).parent
    readers = {
        file.relative_to(folder).parts[0]
        for file in folder.rglob("*.py")
        if "os.environ" in (text := file.read_text()) or "getenv" in text
    }
    # The demo starts processes, whose environment it has to make; the OTEL_* variables are OpenTelemetry's.
    assert readers - {"demo", "telemetry"} == {"config"}
