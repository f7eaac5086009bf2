"""The page of the command line agrees with the parser, and the shell is helped."""

import re
from pathlib import Path

import click

from relay import cli
from relay.manual import manual
from tests.cli.conftest import CONFIGURATION, Relay

ROOT = Path(__file__).parents[2]


def commands(group: click.Group, above: str = "relay") -> dict[str, click.Command]:
    found: dict[str, click.Command] = {}
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            found |= commands(command, f"{above} {name}")
        else:
            found[f"{above} {name}"] = command
    return found


def test_the_page_is_what_the_parser_says() -> None:
    committed = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
    assert committed == manual(cli.main, cli.EXIT_CODES), "docs/cli.md is out of date: run `make docs`"


def test_every_verb_explains_itself_with_an_example_and_every_option_says_what_it_does() -> None:
    for path, command in commands(cli.main).items():
        example = re.search(r"Example: (.*)", command.help or "")
        assert example, path
        assert path.split()[-1] in example[1]
        for option in command.params:
            assert isinstance(option, click.Argument) or option.help, f"{path} {option.name}"


async def test_help_is_what_the_page_has(anywhere: Relay) -> None:
    ran = await anywhere("job", "show", "-h", COLUMNS="120")
    assert ran.code == 0
    assert ran.out.strip() in (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")


async def complete(anywhere: Relay, configured: Path, *typed: str) -> list[str]:
    """What bash offers for the last word typed."""
    words = " ".join(("relay", "--config", str(configured), *typed))
    ran = await anywhere(
        _RELAY_COMPLETE="bash_complete", COMP_WORDS=words, COMP_CWORD=str(len(words.split(" ")) - 1),
        RELAY_DATABASE_DSN="postgresql:///app",
    )  # fmt: skip
    assert ran.err == ""
    return [line.removeprefix("plain,") for line in ran.out.splitlines() if line]


async def test_destinations_are_completed_from_the_configuration(anywhere: Relay, configured: Path) -> None:
    assert await complete(anywhere, configured, "ping", "") == ["billing", "search"]
    assert await complete(anywhere, configured, "pause", "se") == ["search"]


async def test_verbs_are_completed(anywhere: Relay, configured: Path) -> None:
    assert await complete(anywhere, configured, "job", "") == ["cancel", "show"]


async def test_a_broken_configuration_completes_nothing_and_says_nothing(anywhere: Relay, tmp_path: Path) -> None:
    broken = tmp_path / "broken.yaml"
    broken.write_text(CONFIGURATION + "x: [")
    assert await complete(anywhere, broken, "ping", "") == []
    assert await complete(anywhere, tmp_path / "none.yaml", "ping", "") == []


async def test_bash_gets_its_script(anywhere: Relay) -> None:
    ran = await anywhere(_RELAY_COMPLETE="bash_source")
    assert ran.code == 0
    assert "_RELAY_COMPLETE=bash_complete" in ran.out
