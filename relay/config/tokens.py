"""The tokens of the dashboard and the API: read, long enough, and not the same."""

from relay.config.keys import Web
from relay.config.origin import Complaint
from relay.config.values import Secret
from relay.model import Role

_SHORTEST = 20


def resolved(web: Web, complaints: list[Complaint]) -> dict[Role, str]:
    """Return the tokens by role, those that are set; what is wrong with them is added to `complaints`."""
    stated: dict[Role, Secret | None] = {"admin": web.admin_token, "viewer": web.viewer_token}
    tokens: dict[Role, str] = {}
    for role, secret in stated.items():
        if secret is None:
            continue
        path = ("web", f"{role}_token")
        try:
            tokens[role] = secret.text()
        except ValueError as error:
            complaints.append(Complaint(path, str(error)))
            continue
        if len(tokens[role]) < _SHORTEST or not tokens[role].isascii() or not tokens[role].isprintable():
            text = f"{secret.origin}: expected at least {_SHORTEST} visible characters, from `openssl rand -hex 24`"
            complaints.append(Complaint(path, text))
    if len(set(tokens.values())) < len(tokens):
        complaints.append(Complaint(("web", "viewer_token"), "is the same as {other}", ("web", "admin_token")))
    return tokens
