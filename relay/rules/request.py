"""The headers of a delivery.

| header                                     | sent                                                          |
|--------------------------------------------|---------------------------------------------------------------|
| Content-Type, User-Agent                   | always                                                        |
| Idempotency-Key                            | always; the same on every attempt and redrive                 |
| webhook-id, -timestamp, -signature         | when the destination has secrets; Standard Webhooks 1.0       |
| traceparent                                | of the attempt's span; without one as in the next line        |
| traceparent, tracestate                    | the producer's, when well-formed by W3C Trace Context         |
| Relay-Topic, Relay-Entity-Key              | the key where there is one; percent-encoded where needed      |
| Relay-Sequence, Relay-Attempt              | the job's id and the number of this attempt                   |
| Relay-Redrive                              | `true` on a job sent again after it, or later ones, arrived   |
| the destination's own, then the row's own  | never one of the above, of RESERVED_HEADERS                   |

When destination and row name the same header the destination's is sent: credentials belong to the operator,
and no producer may replace them.
"""

import re
from urllib.parse import quote

from relay import __version__
from relay.model import Destination, Job
from relay.rules.signing import signature

# In lower case. The constraint on rows (job_headers_leave_reserved_names_alone) refuses the same.
RESERVED_HEADERS = frozenset(
    {
        *("content-type", "user-agent", "idempotency-key", "traceparent", "tracestate"),
        *("webhook-id", "webhook-timestamp", "webhook-signature"),
        *("relay-topic", "relay-entity-key", "relay-sequence", "relay-attempt", "relay-redrive"),
        *("host", "content-length", "transfer-encoding", "expect"),
        # Hop-by-hop: RFC 9110 section 7.6.1.
        *("connection", "keep-alive", "te", "trailer", "upgrade"),
        *("proxy-authenticate", "proxy-authorization", "proxy-connection"),
    }
)
RESERVED_PREFIXES = ("relay-", "webhook-", "proxy-")

_USER_AGENT = f"outbox-relay/{__version__}"
_TOKEN = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_VALUE = re.compile(r"(?:[!-~](?:[\t -~]*[!-~])?)?")
_UNSAFE = re.compile(r"[^\t -~]")
_PLAIN = re.compile(r"[!-$&-~]*")
_PLAIN_CHARACTERS = "".join(chr(code) for code in range(0x21, 0x7F) if chr(code) != "%")
_TRACEPARENT = re.compile(r"(?!ff)([0-9a-f]{2})-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}(-[!-~]*)?")
_TRACESTATE_MEMBER = re.compile(r"([a-z0-9][a-z0-9_\-*/@]{0,255})=[ -+\--<>-~]{0,255}[!-+\--<>-~]")


def headers(
    job: Job, destination: Destination, timestamp_s: int, traceparent: str | None = None
) -> list[tuple[str, str]]:
    """All headers of this attempt in the order they are sent, except those that frame the message.

    `timestamp_s` is the time of this attempt in whole seconds since 1970. `traceparent` is of the attempt's span
    where it has one. Raises ValueError, naming the header and not its value, when one cannot be sent: the tables'
    constraints let none of those in.
    """
    key = f"{job.idempotency_key}-{destination.key_suffix}" if destination.key_suffix else job.idempotency_key
    sent = [
        ("Content-Type", job.content_type),
        ("User-Agent", _USER_AGENT),
        ("Idempotency-Key", key if destination.key_form == "plain" else _structured_string(key)),
    ]
    if destination.secrets:
        sent += [
            ("webhook-id", key),
            ("webhook-timestamp", str(timestamp_s)),
            ("webhook-signature", signature(destination.secrets, key, timestamp_s, job.body)),
        ]
    if traceparent is not None:
        # A new trace; the job's tracestate belongs to its producer's.
        sent.append(("traceparent", traceparent))
    elif job.traceparent is not None and valid_traceparent(job.traceparent):
        sent.append(("traceparent", job.traceparent))
        if job.tracestate is not None and valid_tracestate(job.tracestate):
            sent.append(("tracestate", job.tracestate))
    sent += [
        ("Relay-Topic", _percent_encoded(job.topic)),
        ("Relay-Sequence", str(job.id)),
        ("Relay-Attempt", str(job.attempts)),
    ]
    if job.entity_key is not None:
        sent.append(("Relay-Entity-Key", _percent_encoded(job.entity_key)))
    if job.redrive:
        sent.append(("Relay-Redrive", "true"))
    sent += destination.headers
    if job.headers:
        sent += _row_headers(job, destination)
    _refuse_unsafe(sent)
    return sent


def header_fault(name: str, value: str) -> str | None:
    """Why a header of the operator's or a row's cannot be sent, in a sentence without its value; or None.

    RFC 9110 sections 5.1 and 5.5, without obs-text: what is not ASCII means something else to every receiver.
    """
    if not _TOKEN.fullmatch(name):
        return f"header name {name!r} may hold only letters, digits and !#$%&'*+-.^_`|~"
    if name.lower() in RESERVED_HEADERS or name.lower().startswith(RESERVED_PREFIXES):
        return f"header {name!r} is set by the relay and cannot be replaced"
    if not _VALUE.fullmatch(value):
        return f"the value of header {name!r} may hold only visible ASCII, with spaces and tabs inside"
    return None


def valid_traceparent(text: str) -> bool:
    """Whether `text` is a traceparent by W3C Trace Context section 3.2, of version 00 or a later one."""
    found = _TRACEPARENT.fullmatch(text)
    return found is not None and (found[1] != "00" or found[2] is None)


def valid_tracestate(text: str) -> bool:
    """Whether `text` is a tracestate by W3C Trace Context section 3.3: at most 32 members, no key twice."""
    members = [stripped for member in text.split(",") if (stripped := member.strip(" \t"))]
    keys = {found[1] for member in members if (found := _TRACESTATE_MEMBER.fullmatch(member))}
    return 0 < len(members) == len(keys) <= 32


def _row_headers(job: Job, destination: Destination) -> list[tuple[str, str]]:
    for name, value in job.headers.items():
        if fault := header_fault(name, value):
            raise ValueError(fault)
    taken = {name.lower() for name, _ in destination.headers}
    return [(name, value) for name, value in job.headers.items() if name.lower() not in taken]


def _structured_string(key: str) -> str:
    """`key` as a String of RFC 8941 section 3.3.3."""
    escaped = key.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _percent_encoded(text: str) -> str:
    """`text` as visible ASCII that percent-decoding always turns back into `text`: `%` is encoded as well."""
    return text if _PLAIN.fullmatch(text) else quote(text, safe=_PLAIN_CHARACTERS)


def _refuse_unsafe(sent: list[tuple[str, str]]) -> None:
    """The last line before the wire: whatever was checked elsewhere, no line break leaves this function."""
    if _UNSAFE.search("".join([name + value for name, value in sent])) is None:
        return
    name = next(name for name, value in sent if _UNSAFE.search(name + value))
    raise ValueError(f"header {name!r} holds a character that cannot be sent in a header")
