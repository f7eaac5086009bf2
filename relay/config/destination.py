"""A destination's settings, what they inherit, and the plain value that the stages use."""

from collections.abc import Iterator, Mapping
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import BeforeValidator, Field

from relay import model
from relay.config.group import Group
from relay.config.origin import Complaint, KeyPath
from relay.config.values import (
    REFERENCE,
    Egress,
    File,
    HeaderValue,
    Number,
    Proxy,
    Reference,
    Seconds,
    Secret,
    Status,
    Suffix,
    Topic,
    Url,
    is_loopback,
    proxy_url,
    unreadable,
)
from relay.rules.request import header_fault
from relay.rules.signing import secret_bytes

_CREDENTIALS = {"authorization", "cookie"}
_PLAIN = (
    *(
        "url",
        "topics",
        "deadline_s",
        "connect_timeout_s",
        "max_in_flight",
        "rate_per_s",
        "permanent_statuses",
    ),
    *("on_dead", "key_form", "key_suffix", "egress"),
)


class Retry(Group):
    """When a failed job is tried again: base_s × factor^(n-1), at most cap_s, plus up to `jitter` of it."""

    max_attempts: Annotated[int, Field(ge=1, le=1_000), Number] = 12
    """Attempts before a job is a dead letter; a job's own `max_attempts` wins."""
    base_s: Seconds = 5.0
    """Delay after the first failure."""
    factor: Annotated[float, Field(ge=1, le=100), Number] = 4.0
    """Growth from one delay to the next."""
    cap_s: Seconds = 21_600.0
    """Longest delay before jitter; not below `base_s`."""
    jitter: Annotated[float, Field(ge=0, le=1), Number] = 0.25
    """Largest share of the delay added at random, never subtracted."""
    retry_after_cap_s: Seconds = 86_400.0
    """Longest wait that a receiver's Retry-After can ask for."""


class Tls(Group):
    """Verification of the receiver's certificate, and our own; files in PEM."""

    ca_file: File | None = None
    """Authorities to trust in place of the system's."""
    client_certificate_file: File | None = None
    """Certificate that the relay presents."""
    client_key_file: File | None = None
    """Its private key, where that is a file of its own."""
    minimum_version: Annotated[Literal["1.2", "1.3"], BeforeValidator(str)] = "1.2"
    """Oldest TLS version accepted."""


class Defaults(Group):
    """What every destination inherits, key by key; `retry`, `tls` and `headers` are merged."""

    deadline_s: Seconds = 15.0
    """Limit on one attempt as a whole: DNS, connect, TLS, write, answer."""
    connect_timeout_s: Seconds = 5.0
    """Limit on DNS, connect and TLS, within `deadline_s`."""
    max_in_flight: Annotated[int, Field(ge=1, le=10_000), Number] = 64
    """Most requests at once, per destination and replica."""
    rate_per_s: Annotated[float, Field(gt=0, le=1_000_000), Number] | None = None
    """Most requests a second, per destination and replica. Empty: no limit."""
    retry: Retry = Retry()
    tls: Tls = Tls()
    permanent_statuses: frozenset[Status] = frozenset()
    """Answers that make a job a dead letter at once."""
    on_dead: Literal["block", "skip"] = "block"
    """Whether a dead letter holds back the later jobs of its entity, or is skipped."""
    headers: dict[str, HeaderValue] = Field(default={}, repr=False)
    """Headers added to every request. Credentials come by reference."""
    proxy: Proxy = Field(default=None, repr=False)
    """HTTP proxy; the environment's proxy variables are not read."""
    egress: Egress = "any"
    """Addresses that may be connected to. Link-local and metadata addresses never are."""
    key_form: Literal["plain", "structured"] = "plain"
    """How Idempotency-Key is written: as it is, or quoted as the IETF draft wants."""
    signed: bool = True
    """Whether requests carry a Standard Webhooks signature."""

    def complaints(self, path: KeyPath) -> Iterator[Complaint]:
        """Yield what is wrong between the keys at `path`."""
        if self.retry.cap_s < self.retry.base_s:
            text = f"{self.retry.cap_s:g} s is less than {{other}}, {self.retry.base_s:g} s"
            yield Complaint((*path, "retry", "cap_s"), text, (*path, "retry", "base_s"))
        if self.tls.client_key_file and not self.tls.client_certificate_file:
            text = f"{self.tls.client_key_file} has no certificate; {{other}} is not set"
            yield Complaint((*path, "tls", "client_key_file"), text, (*path, "tls", "client_certificate_file"))
        for name, value in self.headers.items():
            if name.lower() in _CREDENTIALS and not isinstance(value, Secret):
                yield Complaint((*path, "headers", name), f"is a credential; give it by reference: {REFERENCE}")


class DestinationSettings(Defaults):
    """A webhook. It takes every key of `defaults` too."""

    url: Url = Field(repr=False)
    """Where to POST: https, without user, password or fragment."""
    topics: tuple[Topic, ...] = ()
    """Events it gets: a topic, `prefix.*`, or `*`. Without any it gets only jobs that name it."""
    secrets: tuple[Reference, ...] = ()
    """Signing secrets (`whsec_…`); several while one replaces another. Required unless `signed` is false."""
    key_suffix: Suffix = ""
    """Added to idempotency keys, after a `-`, for two destinations whose receiver shares a store of keys."""
    insecure_http: bool = False
    """Allows http:// to a host that is not loopback: the payload travels readable."""

    def complaints(self, path: KeyPath) -> Iterator[Complaint]:
        """Yield what is wrong between the keys of the destination at `path`."""
        yield from super().complaints(path)
        parts = urlsplit(self.url)
        if parts.scheme == "http" and not self.insecure_http and not is_loopback(parts.hostname or ""):
            text = f"plain http to {parts.hostname}: use https, or set {{other}} to true (it is false)"
            yield Complaint((*path, "url"), text, (*path, "insecure_http"))
        if self.signed and not self.secrets:
            text = "none to sign with: list one, or set {other} false (it is true)"
            yield Complaint((*path, "secrets"), text, (*path, "signed"))
        if self.secrets and not self.signed:
            text = f"{len(self.secrets)} listed, but {{other}} is false; remove one of the two"
            yield Complaint((*path, "secrets"), text, (*path, "signed"))

    def resolved(self, name: str, complaints: list[Complaint]) -> model.Destination:
        """Return the plain value; what is wrong with secrets, headers or files is added to `complaints`."""
        path: KeyPath = ("destinations", name)
        for key, file in self.tls:
            if key.endswith("_file") and file and (fault := unreadable(file)):
                complaints.append(Complaint((*path, "tls", key), fault))
        plain = {key: getattr(self, key) for key in _PLAIN}
        return model.Destination(
            name=name,
            secrets=tuple(self._secrets((*path, "secrets"), complaints)),
            headers=tuple(self._headers((*path, "headers"), complaints)),
            proxy=self._proxy((*path, "proxy"), complaints),
            retry=model.RetryPolicy(**self.retry.model_dump()),
            tls=model.Tls(**self.tls.model_dump()),
            **plain,
        )

    def _secrets(self, path: KeyPath, complaints: list[Complaint]) -> Iterator[bytes]:
        for index, secret in enumerate(self.secrets):
            try:
                yield secret_bytes(secret.text())
            except ValueError as error:
                text = str(error) if secret.fault else f"{secret.origin}: {error}"
                complaints.append(Complaint((*path, index), text))

    def _headers(self, path: KeyPath, complaints: list[Complaint]) -> Iterator[tuple[str, str]]:
        names: dict[str, str] = {}
        for name, value in self.headers.items():
            try:
                text = value.text() if isinstance(value, Secret) else value
            except ValueError as error:
                complaints.append(Complaint((*path, name), str(error)))
                continue
            if fault := header_fault(name, text):
                complaints.append(Complaint((*path, name), fault))
            if (first := names.setdefault(name.lower(), name)) != name:
                complaints.append(Complaint((*path, name), "is the same header as {other}", (*path, first)))
            yield name, text

    def _proxy(self, path: KeyPath, complaints: list[Complaint]) -> str | None:
        if not isinstance(self.proxy, Secret):
            return self.proxy
        try:
            return proxy_url(self.proxy.text())
        except ValueError as error:
            complaints.append(Complaint(path, str(error)))
            return None


def inherited(defaults: object, own: object) -> object:
    """Return `own` with what it does not state taken from `defaults`, mapping by mapping."""
    if not isinstance(defaults, Mapping) or not isinstance(own, Mapping | None):
        return own
    stated = own or {}
    return {**defaults, **{key: inherited(defaults.get(key), value) for key, value in stated.items()}}
