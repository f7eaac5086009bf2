"""Text of somebody else's, made fit to be shown."""


def escaped(text: str) -> str:
    """Text of somebody else's as one line that no terminal obeys."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
