"""What single values cannot tell: settings that contradict each other, each complaint with both key paths."""

from collections.abc import Iterator
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from relay.config.keys import Defaults, DestinationSettings
from relay.config.origin import Complaint, KeyPath
from relay.config.values import REFERENCE, Secret, is_loopback
from relay.rules.egress import is_address, refusal

if TYPE_CHECKING:
    from relay.config.tree import Settings

_CREDENTIALS = {"authorization", "cookie"}
# A lease must outlast the longest attempt and its bookkeeping; a drain must fit one attempt and its settle.
LEASE_MARGIN_S = 5
SETTLE_MARGIN_S = 5
# After the drain the last outcomes may take 8 s to be written (relay/stop.py), the pool 2 s to close.
STOP_MARGIN_S = 10


def contradictions(settings: "Settings") -> Iterator[Complaint]:
    """Yield what is wrong between keys."""
    replica = settings.replica
    for path, each in _webhooks(settings):
        yield from _of_any(each, path)
        deadline: KeyPath = (*path, "deadline_s")
        for key, limit_s, margin_s in (
            ("lease_s", replica.lease_s, LEASE_MARGIN_S),
            ("drain_s", replica.drain_s, SETTLE_MARGIN_S),
        ):
            if each.deadline_s + margin_s >= limit_s:
                text = f"{each.deadline_s:g} s + {margin_s} s must be less than {{other}}, {limit_s:g} s"
                yield Complaint(deadline, text, ("replica", key))
    if replica.drain_s + STOP_MARGIN_S > replica.termination_grace_s:
        text = f"{replica.drain_s:g} s + {STOP_MARGIN_S} s must be at most {{other}}, {replica.termination_grace_s:g} s"
        yield Complaint(("replica", "drain_s"), text, ("replica", "termination_grace_s"))
    for name, destination in settings.destinations.items():
        yield from _of_destination(destination, ("destinations", name))


def _webhooks(settings: "Settings") -> Iterator[tuple[KeyPath, Defaults]]:
    yield ("defaults",), settings.defaults
    for name, destination in settings.destinations.items():
        yield ("destinations", name), destination


def _of_any(each: Defaults, path: KeyPath) -> Iterator[Complaint]:
    """Yield what is wrong between the keys at `path`."""
    if each.retry.cap_s < each.retry.base_s:
        text = f"{each.retry.cap_s:g} s is less than {{other}}, {each.retry.base_s:g} s"
        yield Complaint((*path, "retry", "cap_s"), text, (*path, "retry", "base_s"))
    if each.tls.client_key_file and not each.tls.client_certificate_file:
        text = f"{each.tls.client_key_file} has no certificate; {{other}} is not set"
        yield Complaint((*path, "tls", "client_key_file"), text, (*path, "tls", "client_certificate_file"))
    for name, value in each.headers.items():
        if name.lower() in _CREDENTIALS and not isinstance(value, Secret):
            yield Complaint((*path, "headers", name), f"is a credential; give it by reference: {REFERENCE}")


def _of_destination(each: DestinationSettings, path: KeyPath) -> Iterator[Complaint]:
    """Yield what is wrong between the keys of the destination at `path`."""
    parts = urlsplit(each.url)
    if parts.scheme == "http" and not each.insecure_http and not is_loopback(parts.hostname or ""):
        text = f"plain http to {parts.hostname}: use https, or set {{other}} to true (it is false)"
        yield Complaint((*path, "url"), text, (*path, "insecure_http"))
    if each.proxy is None and is_address(parts.hostname or "") and (why := refusal(parts.hostname or "", each.egress)):
        yield Complaint((*path, "url"), f"{why}; {{other}} does not allow it", (*path, "egress"))
    if each.signed and not each.secrets:
        text = "none to sign with: list one, or set {other} false (it is true)"
        yield Complaint((*path, "secrets"), text, (*path, "signed"))
    if each.secrets and not each.signed:
        text = f"{len(each.secrets)} listed, but {{other}} is false; remove one of the two"
        yield Complaint((*path, "secrets"), text, (*path, "signed"))
