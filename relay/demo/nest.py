"""A private folder and the child processes that live in it; neither survives the process that made them."""

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from relay.demo import guard

NOBODY = 65534
STOP_PATIENCE_S = 15.0


def is_root() -> bool:
    """Whether this process is root, which PostgreSQL refuses to run as."""
    return os.geteuid() == 0


def open_to_nobody(path: Path) -> bool:
    """Whether the unprivileged user can reach `path` through all the folders above it."""
    return all(folder.stat().st_mode & 0o001 for folder in (path, *path.parents))


class Nest:
    """A context manager. A `guard` process in a session of its own ends the children and removes the folder
    when the context ends or this process dies, `kill -9` included.
    """

    def __init__(self) -> None:
        self.path = Path(tempfile.mkdtemp(prefix="outbox-relay-", dir=_temporary_folder()))
        self.path.chmod(0o711)
        self._children: dict[subprocess.Popen[bytes], signal.Signals] = {}
        self._guard = subprocess.Popen(
            [sys.executable, "-I", "-S", str(Path(guard.__file__)), str(self.path)],
            stdin=subprocess.PIPE,
            start_new_session=True,
            cwd="/",
        )

    def start(
        self,
        argv: Sequence[str],
        *,
        log: Path,
        env: Mapping[str, str] | None = None,
        nobody: bool = False,
        end: signal.Signals = signal.SIGKILL,
    ) -> subprocess.Popen[bytes]:
        """Start a child whose output is appended to `log`, and return it.

        `nobody`: as the unprivileged user when this process is root. `end` is the signal that ends the child
        with the nest. It has a session of its own: Ctrl-C reaches only this process, which decides.
        """
        drop = nobody and is_root()
        with log.open("ab") as output:
            child = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                cwd=self.path,
                env=env,
                user=NOBODY if drop else None,
                group=NOBODY if drop else None,
                extra_groups=[] if drop else None,
            )
        self._children[child] = end
        self._tell()
        return child

    def stop(self, child: subprocess.Popen[bytes], number: signal.Signals, *, then: signal.Signals) -> int:
        """Signal a child, wait for its end (15 s, then it gets the signal `then`); return its exit code."""
        child.send_signal(number)
        try:
            code = child.wait(STOP_PATIENCE_S)
        except subprocess.TimeoutExpired:
            child.send_signal(then)
            code = child.wait()
        self.forget(child)
        return code

    def forget(self, child: subprocess.Popen[bytes]) -> None:
        """Take an ended child off the list, so that its number, used again, is never signalled."""
        if self._children.pop(child, None) is not None:
            self._tell()

    def close(self) -> None:
        """End every child and remove the folder. May be called twice."""
        for child, end in list(self._children.items()):
            self.stop(child, end, then=signal.SIGKILL)
        if self._guard.stdin is not None:
            self._guard.stdin.close()
        self._guard.wait()

    def _tell(self) -> None:
        living = " ".join(f"{child.pid}:{end.value}" for child, end in self._children.items())
        if self._guard.stdin is not None:
            self._guard.stdin.write(f"{living}\n".encode())
            self._guard.stdin.flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _temporary_folder() -> Path:
    """The usual one, unless we are root and it lies where the unprivileged user can not go (/root/tmp)."""
    usual = Path(tempfile.gettempdir()).resolve()
    return usual if not is_root() or open_to_nobody(usual) else Path("/tmp")  # noqa: S108  mkdtemp follows
