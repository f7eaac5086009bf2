"""What holds for every page: links lead somewhere, names exist, words are the glossary's."""

import re
import tomllib
from itertools import pairwise
from pathlib import Path

import click
import pytest

from relay import __version__
from relay.cli import main
from relay.config import Settings, reference
from relay.ping import TOPIC
from tests.docs.pages import PAGES, ROOT, inline_code, prose, table, text, tracked

PATHS = [page.relative_to(ROOT).as_posix() for page in PAGES]
# A page of one release speaks of what it had; the others of what there is.
PRESENT = [path for path in PATHS if path != "CHANGELOG.md"]


@pytest.mark.parametrize("path", PATHS)
def test_every_relative_link_leads_to_a_file_and_to_a_heading_in_it(path: str) -> None:
    page = ROOT / path
    for target in re.findall(r"\]\(([^)\s]+)\)", prose(page.read_text())):
        if re.match(r"https?://|mailto:", target):
            continue
        file, _, anchor = target.partition("#")
        found = (page.parent / file).resolve() if file else page
        assert found.exists(), f"{path} links to {target}"
        if anchor:
            assert anchor in _anchors(found), f"{path} links to {target}"


def _anchors(page: Path) -> list[str]:
    headings = re.findall(r"^#+ +(.+)$", prose(page.read_text()), re.MULTILINE)
    return [re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings]


@pytest.mark.parametrize("path", PATHS)
def test_every_verb_that_a_page_names_exists(path: str) -> None:
    named = re.findall(r"(?:`|^\$ )relay((?: [a-z]+)+)", text(path), re.MULTILINE)
    for words in named:
        command: click.Command = main
        for word in words.split():
            if not isinstance(command, click.Group):
                break
            assert word in command.commands, f"{path} names `relay{words}`"
            command = command.commands[word]


def test_every_target_of_make_that_a_page_names_exists() -> None:
    targets = re.findall(r"^([a-z-]+):", text("Makefile"), re.MULTILINE)
    named = {
        (path, word)
        for path in PATHS
        for words in re.findall(r"(?:`|^\$ |^)make(?: -s)?((?: [a-z][a-z-]*)+)(?= |`|$)", text(path), re.MULTILINE)
        for word in words.split()
    }
    assert len(named) > 20
    assert [each for each in sorted(named) if each[1] not in targets] == []


def test_every_verb_stands_in_the_readme_or_in_the_page_of_verbs() -> None:
    pages = text("README.md") + text("docs/cli.md")
    missing = [verb for verb in _verbs(main, "relay") if not re.search(rf"\b{verb}\b", pages)]
    assert missing == []


def _verbs(command: click.Command, name: str) -> list[str]:
    if not isinstance(command, click.Group):
        return [name]
    return [verb for word, each in command.commands.items() for verb in _verbs(each, f"{name} {word}")]


def _settings() -> set[str]:
    keys = set(re.findall(r"^\| `([a-z_.]+)`", reference(), re.MULTILINE))
    groups = re.split(r"^## `", reference(), flags=re.MULTILINE)[1:]
    paths = {
        f"{group.split('`')[0].split('.')[0]}.{key}"
        for group in groups
        for key in re.findall(r"^\| `([a-z_.]+)`", group, re.MULTILINE)
    }
    return keys | {key.rpartition(".")[2] for key in keys} | paths | set(Settings.model_fields)


def test_every_setting_that_the_guides_name_exists() -> None:
    # PostgreSQL's and other people's; the rest has to be a setting, an event or a word of the schema.
    foreign = {"lock_timeout", "target_session_attrs", "at_once", "needs_restart", TOPIC}
    schema = "\n".join(file.read_text() for file in (ROOT / "schema").glob("*.sql"))
    known = _settings() | foreign | {row[0].strip("`") for row in table("docs/operations.md", "event")}
    for path in ("README.md", "docs/receivers.md", "docs/operations.md"):
        for code in inline_code(text(path)):
            for word in re.findall(r"^[a-z]+(?:[_.][a-z]+)+(?=$|: )", code):
                assert word in known or re.search(rf"\b{re.escape(word)}\b", schema), f"{path} names `{word}`"


def test_the_table_of_states_has_exactly_the_statuses_that_the_constraint_allows() -> None:
    constraint = re.search(r"job_status_is_known CHECK \((.*?)\)\)", text("schema/0001_job.sql"), re.DOTALL)
    assert constraint is not None
    named = {word for row in table("ARCHITECTURE.md", "from") for cell in row[:2] for word in inline_code(cell)}
    assert named == set(re.findall(r"'(\w+)'", constraint[1]))


def test_the_table_of_refusals_has_exactly_the_constraints_on_what_a_producer_writes() -> None:
    written = text("schema/0001_job.sql").partition("-- Input.")[2]
    cells = [row[0] for row in table("docs/producers/README.md", "the error names")]
    named = [code for cell in cells for code in inline_code(cell) if code.startswith("job_")]
    assert sorted(named) == sorted(re.findall(r"CONSTRAINT (\w+)", written))


def test_every_module_stands_on_one_floor() -> None:
    modules = {file.stem for file in (ROOT / "relay").glob("*.py")} - {"__init__"}
    modules |= {file.parent.name for file in (ROOT / "relay").glob("*/__init__.py")}
    floors = [code.rstrip("/") for row in table("ARCHITECTURE.md", "floor") for code in inline_code(row[1])]
    assert sorted(floors) == sorted(modules)


def test_the_floors_of_the_page_are_those_that_are_checked() -> None:
    contract = tomllib.loads(text("pyproject.toml"))["tool"]["importlinter"]["contracts"][0]
    checked = {
        module.strip().removeprefix("relay."): floor
        for floor, layer in enumerate(contract["layers"])
        for module in layer.split("|")
    }
    heights = [
        {checked[code.rstrip("/")] for code in inline_code(row[1]) if code.rstrip("/") in checked}
        for row in table("ARCHITECTURE.md", "floor")
    ]
    for upper, lower in pairwise(heights):
        assert max(upper) <= min(lower), f"{upper} above {lower}"


def test_every_file_that_architecture_names_exists() -> None:
    named = [code for code in inline_code(text("ARCHITECTURE.md")) if re.fullmatch(r"[\w/]+(\.py|\.sql|/)", code)]
    missing = [name for name in named if not ((ROOT / name).exists() or (ROOT / "relay" / name).exists())]
    assert missing == []


@pytest.mark.parametrize("path", [path for path in PRESENT if path != "CONTRIBUTING.md"])
def test_no_page_uses_a_second_word_for_a_job_or_a_replica(path: str) -> None:
    # OpenTelemetry's names are not ours.
    written = prose(text(path)).replace("messaging.message.", "").replace("messaging.batch.message_count", "")
    found = re.findall(r"\b(?:tasks?|messages?|acks?|workers?|consumers?)\b", written, re.IGNORECASE)
    assert found == []


def test_every_word_of_the_glossary_is_used_in_the_code() -> None:
    code = "\n".join(file.read_text() for file in (ROOT / "relay").rglob("*") if file.suffix in {".py", ".sql"})
    for row in table("ARCHITECTURE.md", "word"):
        for word in row[0].split(", "):
            assert re.search(rf"\b{word.replace(' ', '[ _]')}", code), word


def test_the_changelog_has_the_current_version() -> None:
    assert f"## {__version__}" in text("CHANGELOG.md")


def test_no_file_names_a_package_registry() -> None:
    hosts = ("pypi" + ".org", "files.python" + "hosted", "npm" + "js.", "yarn" + "pkg", "crates" + ".io")
    pattern = re.compile("|".join(map(re.escape, hosts)) + r"|\bregistry\.[a-z0-9-]+\.(?:com|org|io|net)\b")
    found = [
        file.relative_to(ROOT).as_posix()
        for file in tracked()
        if file.is_file() and pattern.search(file.read_bytes().decode(errors="replace"))
    ]
    assert found == []
