"""The kinds of value a setting can have: what is accepted, and the sentence for what is not."""

import ipaddress
import re
from pathlib import Path
from typing import Annotated
from urllib.parse import SplitResult, urlsplit

from pydantic import AfterValidator, BeforeValidator, Field, PlainValidator, StringConstraints, WithJsonSchema

from relay.rules.egress import host_fault

YEAR_S = 31_536_000
REFERENCE = "{env: NAME} or {file: PATH}"


class Secret:
    """A text that no repr, log or error shows; `origin` says where it was read, `fault` why that failed."""

    __slots__ = ("_text", "fault", "origin")

    def __init__(self, origin: str, text: str = "", fault: str | None = None) -> None:
        self.origin = origin
        self.fault = fault
        self._text = text

    def __repr__(self) -> str:
        return f"Secret({self.origin})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and (self._text, self.fault) == (other._text, other.fault)

    def __hash__(self) -> int:
        return hash((self._text, self.fault))

    def get_secret_value(self) -> str:
        """Return the text; empty when `fault` is set."""
        return self._text

    def text(self) -> str:
        """Return the text; raises ValueError with `fault`."""
        if self.fault:
            raise ValueError(self.fault)
        return self._text


def _reference(value: object) -> Secret:
    if not isinstance(value, Secret):
        raise ValueError(f"a secret is given by reference: {REFERENCE}")  # noqa: TRY004 - pydantic takes ValueError
    return value


def _dsn(value: object) -> Secret:
    if isinstance(value, Secret):
        return value
    if not isinstance(value, str) or not value.strip():
        raise ValueError(f"expected a connection string, {REFERENCE}")
    if re.search(r"password\s*=|//[^/@]*:[^/@]*@", value):
        raise ValueError(f"holds a password; give it by reference: {REFERENCE}")
    return Secret("text", value)


def _header_value(value: object) -> str | Secret:
    if isinstance(value, str | Secret):
        return value
    raise ValueError(f"a header's value is text (quote numbers and dates), {REFERENCE}")


def _proxy(value: object) -> str | Secret | None:
    if value is None or isinstance(value, Secret):
        return value
    if not isinstance(value, str) or "@" in value:
        raise ValueError(f"expected http://HOST:PORT; with a password by reference: {REFERENCE}")
    return proxy_url(value)


def proxy_url(text: str) -> str:
    """Return `text`; raises ValueError, without the text, unless it is a proxy's URL."""
    parts = split_url(text)
    if parts is None or parts.scheme not in {"http", "https"} or not parts.hostname:
        raise ValueError("not a proxy's URL: expected http://HOST:PORT")
    return text


def unreadable(file: str) -> str | None:
    """Return why a file cannot be read, or None."""
    try:
        with Path(file).open("rb"):
            return None
    except (OSError, ValueError) as error:
        name = file if file.isprintable() and "-----" not in file else "this is no file's name and"
        return f"{name} cannot be read: {getattr(error, 'strerror', None) or 'bad name'}"


def is_loopback(host: str) -> bool:
    """Whether plain http to `host` stays on this machine."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def split_url(text: str) -> SplitResult | None:
    """Return the parts of a URL, or None where it has none (`urlsplit` drops control characters silently)."""
    try:
        parts = urlsplit(text)
        _ = parts.port
    except ValueError:
        return None
    bracketed = re.fullmatch(r"([^\[\]]*@)?(\[[^\[\]]*:[^\[\]]*\](:\d*)?|[^\[\]]*)", parts.netloc)
    return None if bracketed is None or re.search(r"[\x00-\x20\x7f\\]", text) else parts


def _url(text: str) -> str:
    parts = split_url(text)
    if parts is None:
        raise ValueError("not a URL (bad port or host, or a space, backslash or control character in it)")
    if parts.scheme not in {"http", "https"}:
        raise ValueError(f"scheme {parts.scheme!r} is not supported: write https://…")
    if not parts.hostname:
        raise ValueError("names no host: write https://HOST/PATH")
    if fault := host_fault(parts.hostname):
        raise ValueError(fault)
    if "@" in parts.netloc:
        raise ValueError("holds a user or password; use headers with a secret reference")
    if "#" in text:
        raise ValueError("has a fragment (#…), which is never sent; remove it")
    if not (parts.path + parts.query).isascii():
        raise ValueError("path and query must be ASCII; percent-encode the rest")
    return text


def _egress(value: object) -> str | tuple[str, ...]:
    if value in ("any", "public"):
        return str(value)
    if not isinstance(value, list | tuple) or not value:
        raise ValueError("expected any, public, or a list of networks such as [10.0.0.0/8]")
    try:
        return tuple(str(ipaddress.ip_network(network)) for network in map(str, value))
    except ValueError as error:
        raise ValueError(f"{error}; write a network such as 10.0.0.0/8") from None


def _not_bool(value: object) -> object:
    if isinstance(value, bool):
        raise ValueError("must be a number")  # noqa: TRY004 - pydantic takes ValueError
    return value


def matching(pattern: str, expected: str) -> AfterValidator:
    """Return a rule that text matches `pattern` as a whole; `expected` says so to people."""

    def check(text: str) -> str:
        if not re.fullmatch(pattern, text):
            raise ValueError(f"expected {expected}")
        return text

    return AfterValidator(check)


# YAML's booleans are numbers to Python, and to nobody else.
Number = BeforeValidator(_not_bool)
Seconds = Annotated[float, Field(gt=0, le=YEAR_S, allow_inf_nan=False), Number]
Status = Annotated[int, Field(ge=100, le=599), Number]
Topic = Annotated[
    str,
    matching(r"\*|[^\s*]{1,250}(\.\*)?", "a topic, prefix.* or *"),
    WithJsonSchema({"type": "topic, `prefix.*` or `*`"}),
]
Name = Annotated[str, matching(r"[a-z0-9][a-z0-9_-]{0,62}", "1 to 63 of a-z 0-9 _ -, beginning with a letter or digit")]
Suffix = Annotated[str, matching(r"[A-Za-z0-9_-]{0,64}", "at most 64 of A-Z a-z 0-9 _ -")]
File = Annotated[str, StringConstraints(min_length=1)]
Url = Annotated[str, AfterValidator(_url), WithJsonSchema({"type": "URL"})]
Egress = Annotated[
    str | tuple[str, ...], PlainValidator(_egress), WithJsonSchema({"type": "any, public, list of networks"})
]
Reference = Annotated[Secret, PlainValidator(_reference), WithJsonSchema({"type": REFERENCE})]
Dsn = Annotated[Secret, PlainValidator(_dsn), WithJsonSchema({"type": f"text, {REFERENCE}"})]
HeaderValue = Annotated[str | Secret, PlainValidator(_header_value), WithJsonSchema({"type": f"text, {REFERENCE}"})]
Proxy = Annotated[str | Secret | None, PlainValidator(_proxy), WithJsonSchema({"type": f"URL, {REFERENCE}"})]
