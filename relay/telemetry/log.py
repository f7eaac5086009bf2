"""Structured events on standard error: one line each, JSON for machines or text for a terminal."""

import datetime as dt
import json
import logging
import sys
from typing import Literal

LogFormat = Literal["auto", "json", "text"]

_LOG = logging.getLogger("relay")


def event(level: int, name: str, *, fault: BaseException | None = None, **fields: object) -> None:
    """Logs `name` with its fields. `fault` adds a traceback: for bugs, never for what a receiver or operator did."""
    if _LOG.isEnabledFor(level):
        trace = (type(fault), fault, fault.__traceback__) if fault is not None else None
        _LOG.log(level, name, extra={"fields": fields}, exc_info=trace)


def configure_logging(level: str, form: LogFormat) -> None:
    """Sends events of `level` and above to standard error; `auto` is text on a terminal and JSON elsewhere."""
    handler = logging.StreamHandler(sys.stderr)
    as_text = form == "text" or (form == "auto" and sys.stderr.isatty())
    handler.setFormatter(_Text() if as_text else _Json())
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
    _LOG.setLevel(level.upper())


def _instant(record: logging.LogRecord) -> str:
    return dt.datetime.fromtimestamp(record.created, dt.UTC).isoformat(timespec="milliseconds")


class _Json(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "at": _instant(record),
            "level": record.levelname.lower(),
            "event": record.getMessage(),
        }
        line.update(getattr(record, "fields", {}))
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str, ensure_ascii=False)


class _Text(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        fields = " ".join(f"{key}={value}" for key, value in getattr(record, "fields", {}).items())
        line = f"{_instant(record)[11:23]} {record.levelname.lower():7} {record.getMessage()} {fields}".rstrip()
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line
