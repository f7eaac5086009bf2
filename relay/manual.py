"""The page docs/cli.md, written from the parser."""

from collections.abc import Iterator

import click

# What click makes of a wide terminal, given main's max_content_width.
_WIDTH = 98

_INTRODUCTION = """\
# Command line

This page is generated from the parser; `make docs` writes it again.

Results go to standard output, sentences about faults to standard error. `--json` prints one JSON object a line, its
durations in seconds. Colour is for terminals only, and not where `NO_COLOR` is set.

## Exit codes

"""

_COMPLETION = """
## Completion

The shell completes verbs, options and the names of configured destinations after one of

```sh
eval "$(_RELAY_COMPLETE=bash_source relay)"           # in ~/.bashrc
eval "$(_RELAY_COMPLETE=zsh_source relay)"            # in ~/.zshrc
_RELAY_COMPLETE=fish_source relay | source            # in ~/.config/fish/completions/relay.fish
```
"""


def manual(command: click.Command, exit_codes: str) -> str:
    """The page as Markdown, for `command` and all below it. `exit_codes` is a table in Markdown."""
    pages = [f"## `{path}`\n\n```text\n{text}\n```\n" for path, text in _pages(command, None, "relay")]
    return _INTRODUCTION + exit_codes.strip() + "\n" + _COMPLETION + "\n" + "\n".join(pages)


def _pages(command: click.Command, above: click.Context | None, name: str) -> Iterator[tuple[str, str]]:
    context = click.Context(command, above, name, **{**command.context_settings, "terminal_width": _WIDTH})
    yield context.command_path, command.get_help(context)
    if isinstance(command, click.Group):
        for each in command.list_commands(context):
            if (below := command.get_command(context, each)) is not None:
                yield from _pages(below, context, each)
