"""A destination's settings become the plain value that the stages use."""

from collections.abc import Iterator

from relay import model
from relay.config.content import content
from relay.config.keys import DestinationSettings
from relay.config.origin import Complaint, KeyPath
from relay.config.values import Secret, proxy_url, unreadable
from relay.rules.request import header_fault
from relay.rules.signing import secret_bytes

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


def resolved(name: str, each: DestinationSettings, complaints: list[Complaint]) -> model.Destination:
    """Return the plain value; what is wrong with secrets, headers or files is added to `complaints`."""
    path: KeyPath = ("destinations", name)
    files = [(key, file) for key, file in each.tls if key.endswith("_file") and file]
    for key, file in files:
        if fault := unreadable(file):
            complaints.append(Complaint((*path, "tls", key), fault))
    plain = {key: getattr(each, key) for key in _PLAIN}
    return model.Destination(
        name=name,
        secrets=tuple(_secrets(each, (*path, "secrets"), complaints)),
        headers=tuple(_headers(each, (*path, "headers"), complaints)),
        proxy=_proxy(each, (*path, "proxy"), complaints),
        retry=model.RetryPolicy(**each.retry.model_dump()),
        tls=model.Tls(**each.tls.model_dump(), contents=tuple((key, content(file)) for key, file in files)),
        **plain,
    )


def _secrets(each: DestinationSettings, path: KeyPath, complaints: list[Complaint]) -> Iterator[bytes]:
    for index, secret in enumerate(each.secrets):
        try:
            yield secret_bytes(secret.text())
        except ValueError as error:
            text = str(error) if secret.fault else f"{secret.origin}: {error}"
            complaints.append(Complaint((*path, index), text))


def _headers(each: DestinationSettings, path: KeyPath, complaints: list[Complaint]) -> Iterator[tuple[str, str]]:
    names: dict[str, str] = {}
    for name, value in each.headers.items():
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


def _proxy(each: DestinationSettings, path: KeyPath, complaints: list[Complaint]) -> str | None:
    if not isinstance(each.proxy, Secret):
        return each.proxy
    try:
        return proxy_url(each.proxy.text())
    except ValueError as error:
        complaints.append(Complaint(path, str(error)))
        return None
