"""A database that takes nobody without TLS: its name is verified, a certificate or a password file says who we are.

On Debian's PostgreSQL, since not every build of it has TLS.
"""

import os
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path

import psycopg
import pytest
import trustme

from relay.demo.nest import NOBODY, Nest, is_root
from relay.demo.postgres import Postgres
from relay.migrate import migrate
from tests.conftest import OPTIONS
from tests.majors import binaries
from tests.receiver import Receiver
from tests.service.replica import Installation

# The tests' own superuser comes as it likes; the relay by TLS only, in one of two ways.
ACCESS = """\
host    all   postgres    127.0.0.1/32 trust
hostssl relay by_password 127.0.0.1/32 scram-sha-256
hostssl relay by_certificate 127.0.0.1/32 cert
"""
ROLES = """
CREATE ROLE by_password LOGIN PASSWORD 'a "quoted" \\ one' IN ROLE outbox_relay;
CREATE ROLE by_certificate LOGIN IN ROLE outbox_relay
"""
SHOP = "INSERT INTO outbox.job (topic, destination, payload) VALUES ('t', 'shop', '{}')"
SECURE = """
SELECT bool_and(ssl), count(*) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) WHERE application_name LIKE 'relay %'
"""


@dataclass(frozen=True)
class Secured:
    """A server that calls itself `localhost`, and the files of its clients."""

    postgres: Postgres
    folder: Path

    def dsn(self, user: str, *, host: str = "localhost", ca: str = "ca.pem", **more: str) -> str:
        """A connection string that verifies the server's name."""
        parts = {"sslmode": "verify-full", "sslrootcert": str(self.folder / ca), **more}
        query = "&".join(f"{key}={value}" for key, value in parts.items())
        return f"postgresql://{user}@{host}:{self.postgres.port}/relay?{query}"

    @property
    def by_password(self) -> str:
        """The connection string of who has a password file."""
        return self.dsn("by_password", passfile=str(self.folder / "passfile"))

    @property
    def by_certificate(self) -> str:
        """The connection string of who has a certificate."""
        return self.dsn("by_certificate", sslcert=f"{self.folder}/client.pem", sslkey=f"{self.folder}/client.key")


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Authorities, and what a server and a client of the first of them have."""
    folder = tmp_path_factory.mktemp("tls")
    authority, other = trustme.CA(), trustme.CA()
    authority.cert_pem.write_to_path(str(folder / "ca.pem"))
    other.cert_pem.write_to_path(str(folder / "other.pem"))
    client = authority.issue_cert(common_name="by_certificate")
    client.cert_chain_pems[0].write_to_path(str(folder / "client.pem"))
    client.private_key_pem.write_to_path(str(folder / "client.key"))
    (folder / "client.key").chmod(0o600)
    (folder / "server").mkdir()
    server = authority.issue_cert("localhost")
    server.cert_chain_pems[0].write_to_path(str(folder / "server" / "server.pem"))
    server.private_key_pem.write_to_path(str(folder / "server" / "server.key"))
    return folder


def admit(connection: psycopg.Connection) -> None:
    """Let in who may come in, and nobody else from now on."""
    [[access]] = connection.execute("SHOW hba_file").fetchall()
    Path(access).write_text(ACCESS)
    connection.execute("SELECT pg_reload_conf()")


@pytest.fixture(scope="module")
async def secured(files: Path) -> AsyncIterator[Secured]:
    """The server, with a migrated database."""
    with Nest() as nest:
        tls = {"ssl": "on", "ssl_ca_file": "ca.pem", "ssl_cert_file": "server.pem", "ssl_key_file": "server.key"}
        for name in ("ca.pem", "server/server.pem", "server/server.key"):
            copy = nest.path / Path(name).name
            copy.write_bytes((files / name).read_bytes())
            copy.chmod(0o600)
            if is_root():
                os.chown(copy, NOBODY, NOBODY)
        options = {key: str(nest.path / value) if key.endswith("_file") else value for key, value in tls.items()}
        with Postgres(nest, binaries=binaries("15"), options={**OPTIONS, **options}, tcp=True) as postgres:
            await migrate(postgres.create_database("relay"))
            with psycopg.connect(postgres.dsn("relay"), autocommit=True) as connection:
                connection.execute(ROLES)
                admit(connection)
            # A colon and a backslash are escaped by a backslash.
            passfile = files / "passfile"
            passfile.write_text(f'localhost:{postgres.port}:relay:by_password:a "quoted" \\\\ one\n')
            passfile.chmod(0o600)
            yield Secured(postgres, files)


@pytest.fixture
def superuser(secured: Secured) -> Iterator[psycopg.Connection]:
    """A connection of the tests' own, to the emptied table."""
    with psycopg.connect(secured.postgres.dsn("relay"), autocommit=True) as connection:
        connection.execute("TRUNCATE outbox.job")
        yield connection


@pytest.fixture
async def relay(nest: Nest, tmp_path: Path) -> AsyncIterator[Installation]:
    """Processes that a test gives a connection string."""
    installation = Installation(nest, tmp_path, "")
    yield installation
    await installation.close()


@pytest.mark.parametrize("way", ["by_password", "by_certificate"])
async def test_a_replica_verifies_its_database_and_every_connection_of_it_is_encrypted(
    relay: Installation, secured: Secured, superuser: psycopg.Connection, receiver: Receiver, way: str
) -> None:
    relay.dsn = getattr(secured, way)
    relay.configure({"shop": {"url": receiver.url()}})
    replica = await relay.start()
    superuser.execute(SHOP)
    await receiver.wait_for(1)
    connections = 0
    # The pool's, and the one that listens, which may come later.
    while connections < 2:
        [(encrypted, connections)] = superuser.execute(SECURE).fetchall()
        assert encrypted
    assert await replica.stop() == 0


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"ca": "other.pem"}, "certificate verify failed"),
        ({"host": "127.0.0.1"}, 'does not match host name "127.0.0.1"'),
        ({"sslmode": "disable"}, "no encryption"),
        ({"passfile": "/nowhere"}, "no password supplied"),
    ],
    ids=["authority", "name", "plain", "password"],
)
async def test_a_database_that_cannot_be_trusted_or_does_not_trust_us_is_left_alone(
    relay: Installation, secured: Secured, receiver: Receiver, changed: dict[str, str], why: str
) -> None:
    relay.dsn = secured.dsn("by_password", **{"passfile": str(secured.folder / "passfile"), **changed})
    relay.configure({"shop": {"url": receiver.url()}})
    refused = await relay.command("run")
    assert refused.code == 3
    assert why in refused.error
    assert "Traceback" not in refused.error


async def test_a_user_who_comes_by_certificate_is_refused_without_one(
    relay: Installation, secured: Secured, receiver: Receiver
) -> None:
    relay.dsn = secured.dsn("by_certificate", sslcert="/nowhere")
    relay.configure({"shop": {"url": receiver.url()}})
    refused = await relay.command("run")
    assert refused.code == 3
    assert "requires a valid client certificate" in refused.error


async def test_a_password_file_that_others_may_read_is_not_used(
    relay: Installation, secured: Secured, receiver: Receiver, tmp_path: Path
) -> None:
    copy = tmp_path / "passfile"
    copy.write_bytes((secured.folder / "passfile").read_bytes())
    copy.chmod(0o640)
    relay.dsn = secured.dsn("by_password", passfile=str(copy))
    relay.configure({"shop": {"url": receiver.url()}})
    refused = await relay.command("run")
    assert refused.code == 3
    assert "has group or world access" in refused.error
