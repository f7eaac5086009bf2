"""Debian's pgbouncer in transaction mode, in front of a test's database."""

import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg

from relay.demo.nest import Nest

PROGRAM = Path("/usr/sbin/pgbouncer")


@contextmanager
def pgbouncer(nest: Nest, dsn: str) -> Iterator[str]:
    """The DSN that leads to `dsn` through the pooler."""
    to = psycopg.conninfo.conninfo_to_dict(dsn)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    users, settings = nest.path / f"users-{port}.txt", nest.path / f"pgbouncer-{port}.ini"
    users.write_text('"postgres" ""\n')
    settings.write_text(
        f"[databases]\npooled = host={to['host']} port={to['port']} dbname={to['dbname']} user=postgres\n"
        f"[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\n"
        f"auth_type = trust\nauth_file = {users}\npool_mode = transaction\n"
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
