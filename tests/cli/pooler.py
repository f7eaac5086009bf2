"""Debian's pgbouncer in transaction mode, in front of a test's database."""

import socket
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import psycopg

from relay.demo.nest import Nest

PROGRAM = Path("/usr/sbin/pgbouncer")


@contextmanager
def pgbouncer(nest: Nest, dsn: str, users: Sequence[str] = ()) -> Iterator[str]:
    """The DSN that leads to `dsn` through the pooler, for user postgres and these."""
    to = psycopg.conninfo.conninfo_to_dict(dsn)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    known, settings = nest.path / f"users-{port}.txt", nest.path / f"pgbouncer-{port}.ini"
    known.write_text("".join(f'"{user}" ""\n' for user in ("postgres", *users)))
    settings.write_text(
        f"[databases]\npooled = host={to['host']} port={to['port']} dbname={to['dbname']}\n"
        f"[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\n"
        f"auth_type = trust\nauth_file = {known}\npool_mode = transaction\n"
        # A database that comes back is noticed at once, and not after 15 s.
        "server_login_retry = 1\nmax_client_conn = 200\n"
    )
    server = nest.start([str(PROGRAM), str(settings)], log=nest.path / f"pgbouncer-{port}.log", nobody=True)
    try:
        pooled = f"postgresql://postgres@127.0.0.1:{port}/pooled"
        _wait(server, pooled)
        yield pooled
    finally:
        server.terminate()
        server.wait()
        nest.forget(server)


def _wait(server: "subprocess.Popen[bytes]", dsn: str) -> None:
    while True:
        assert server.poll() is None, "pgbouncer did not start"
        try:
            psycopg.connect(dsn).close()
        except psycopg.OperationalError:
            continue
        return
