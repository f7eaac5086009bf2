"""What is in files, as digests: whether a file has changed is asked of its content, never of its times."""

import hashlib
from collections.abc import Iterable
from pathlib import Path

# More than any certificate bundle; a name that leads to a device must not be read to its end.
_MAX_BYTES = 16 << 20


def content(file: str) -> bytes:
    """Return the digest of what is in `file`, or of why it cannot be read."""
    try:
        with Path(file).open("rb") as stream:
            return hashlib.sha256(stream.read(_MAX_BYTES)).digest()
    except (OSError, ValueError) as error:
        return hashlib.sha256(type(error).__name__.encode()).digest()


def digest(files: Iterable[str]) -> bytes:
    """Return one digest of what all of `files` are called and hold."""
    return hashlib.sha256(b"".join(file.encode() + content(file) for file in sorted(files))).digest()
