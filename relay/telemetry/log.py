"""Structured events on standard error: one line each, JSON for machines or text for a terminal."""

import datetime as dt
import json
import logging
import re
import sys
import traceback
from collections.abc import Iterator
from typing import Literal

from relay.rules.escape import escaped

LogFormat = Literal["auto", "json", "text"]

_LOG = logging.getLogger("relay")
_USERINFO = re.compile(r"//[^/@\s]*@")
_QUERY = re.compile(r"\?[^\s'\")>]+")


def event(level: int, name: str, *, fault: BaseException | None = None, **fields: object) -> None:
    """Logs `name` with its fields; those that are None are left out.

    `fault` adds a traceback: for bugs, never for what a receiver or operator did.
    """
    if _LOG.isEnabledFor(level):
        trace = (type(fault), fault, fault.__traceback__) if fault is not None else None
        known = {key: value for key, value in fields.items() if value is not None}
        _LOG.log(level, name, extra={"fields": known}, exc_info=trace)


def configure_logging(level: str, form: LogFormat) -> None:
    """Sends events of `level` and above to standard error; `auto` is text on a terminal and JSON elsewhere.

    What libraries log is written from level warning on, as the event `library`.
    """
    handler = logging.StreamHandler(sys.stderr)
    as_text = form == "text" or (form == "auto" and sys.stderr.isatty())
    handler.setFormatter(_Text() if as_text else _Json())
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
    _LOG.setLevel(level.upper())


def without_credentials(text: str) -> str:
    """Somebody else's sentence without what may be secret in the URLs it names: userinfo and queries."""
    return _QUERY.sub("?…", _USERINFO.sub("//…@", text))


def _instant(record: logging.LogRecord) -> str:
    return dt.datetime.fromtimestamp(record.created, dt.UTC).isoformat(timespec="milliseconds")


def _named(record: logging.LogRecord) -> tuple[str, dict[str, object]]:
    """The event of a record, and its fields."""
    if record.name == _LOG.name:
        return record.getMessage(), getattr(record, "fields", {})
    return "library", {"logger": record.name, "text": without_credentials(record.getMessage())}


def _traceback(fault: BaseException) -> str:
    """Where `fault` and what led to it were raised, each with the first line of what it says.

    PostgreSQL's further lines hold the failing row, and with it a payload.
    """
    return "".join(_frames(fault)).rstrip()


def _frames(fault: BaseException) -> Iterator[str]:
    before = fault.__cause__ or (None if fault.__suppress_context__ else fault.__context__)
    if before is not None:
        yield from _frames(before)
        yield "which led to:\n"
    yield from traceback.format_tb(fault.__traceback__)
    sentence = without_credentials((str(fault).splitlines() or [""])[0])
    yield f"{type(fault).__module__}.{type(fault).__qualname__}: {sentence}\n"


class _Json(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        name, fields = _named(record)
        line: dict[str, object] = {"at": _instant(record), "level": record.levelname.lower(), "event": name, **fields}
        if record.exc_info and record.exc_info[1]:
            line["traceback"] = _traceback(record.exc_info[1])
        return json.dumps(line, default=str, ensure_ascii=False)


class _Text(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        name, fields = _named(record)
        shown = " ".join(f"{key}={_one_line(value)}" for key, value in fields.items())
        line = f"{_instant(record)[11:23]} {record.levelname.lower():7} {name} {shown}".rstrip()
        return f"{line}\n{_traceback(record.exc_info[1])}" if record.exc_info and record.exc_info[1] else line


def _one_line(value: object) -> str:
    """A value that no terminal obeys, in quotes where it is more than a word."""
    text = escaped(str(value))
    return json.dumps(text, ensure_ascii=False) if " " in text else text
