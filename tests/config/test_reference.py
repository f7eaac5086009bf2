"""The documents that people copy from agree with the settings."""

from pathlib import Path

from relay.config import load, reference, warnings

ROOT = Path(__file__).parents[2]


def test_the_reference_page_is_what_the_settings_say() -> None:
    committed = (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8")
    assert committed == reference(), "docs/configuration.md is out of date: run `make docs`"


def test_the_reference_does_not_depend_on_the_machine(tmp_path: Path) -> None:
    assert str(tmp_path.home()) not in reference()
    assert "the host's name" in reference()


def test_the_example_is_valid(tmp_path: Path) -> None:
    (tmp_path / "authorization").write_text("Bearer x\n")
    example = (ROOT / "relay.example.yaml").read_text(encoding="utf-8")
    file = tmp_path / "relay.yaml"
    file.write_text(example.replace("/run/secrets/search-authorization", str(tmp_path / "authorization")))
    secret = "whsec_" + "QUJD" * 8
    settings = load(file, {"RELAY_DATABASE_DSN": "postgresql:///app", "BILLING_WEBHOOK_SECRET": secret})
    assert [each.name for each in settings.resolved_destinations()] == ["billing", "search"]
    assert warnings(settings) == []
