"""The producers' pages of other languages, compiled and run: `make producers`.

Debian: nodejs npm default-jdk-headless libpostgresql-jdbc-java golang-go golang-github-jackc-pgx-v4-dev
ruby ruby-pg ruby-activerecord php-cli php-pgsql. npm brings the rest of Node's. What is missing fails.
"""

import os
import shutil
import subprocess
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from relay.migrate import compare, migrate, script
from tests.docs.pages import blocks, snippet
from tests.producers.npm import modules
from tests.producers.story import TRACEPARENT, assert_created

DRIVERS = Path(__file__).parent / "drivers"
JDBC = "/usr/share/java/postgresql.jar"
GO_CACHE = Path(__file__).parents[2] / ".cache" / "go"


def page(folder: Path, name: str, language: str, *files: str) -> None:
    """Lay the code of a page into a folder, as the first of `files`, and the driver, as the second."""
    source, driver = files
    (folder / source).write_text("\n".join(blocks(f"docs/producers/{name}.md", language)))
    shutil.copy(DRIVERS / driver, folder)


def play(shop: str, folder: Path, *command: str, **environment: str) -> None:
    """Run a program against the database `shop`; it prints 1, which is the id of its first job."""
    parts = {key: str(value) for key, value in conninfo_to_dict(shop).items()}
    done = subprocess.run(
        command,
        cwd=folder,
        env={
            "PATH": os.environ["PATH"],
            "HOME": str(folder),
            "PGHOST": parts["host"],
            "PGPORT": parts["port"],
            "PGUSER": parts["user"],
            "PGDATABASE": parts["dbname"],
            "TRACEPARENT": TRACEPARENT,
            **environment,
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert (done.stdout, done.stderr) == ("1\n", "")


@pytest.mark.parametrize("client", ["pg", "knex"])
def test_node(shop: str, shop_owner: str, tmp_path: Path, client: str) -> None:
    page(tmp_path, "node", "js", "page.mjs", "main.mjs")
    (tmp_path / "node_modules").symlink_to(modules())
    play(shop, tmp_path, "node", "main.mjs", client)
    assert_created(shop_owner, compact=True)


def test_java(shop: str, shop_owner: str, tmp_path: Path) -> None:
    page(tmp_path, "java", "java", "Orders.java", "Main.java")
    subprocess.run(["javac", "-d", tmp_path, *tmp_path.glob("*.java")], check=True)
    play(shop, tmp_path, "java", "-XX:TieredStopAtLevel=1", "-cp", f"{tmp_path}:{JDBC}", "Main")
    assert_created(shop_owner)


def test_go(shop: str, shop_owner: str, tmp_path: Path) -> None:
    page(tmp_path, "go", "go", "page.go", "main.go")
    # Debian's libraries lie as before there were modules.
    build = {**os.environ, "GO111MODULE": "off", "GOPATH": "/usr/share/gocode", "GOCACHE": str(GO_CACHE)}
    subprocess.run(["go", "build", "-o", "story", "page.go", "main.go"], cwd=tmp_path, env=build, check=True)
    play(shop, tmp_path, "./story")
    assert_created(shop_owner, compact=True)


@pytest.mark.parametrize("client", ["pg", "active_record"])
def test_ruby(shop: str, shop_owner: str, tmp_path: Path, client: str) -> None:
    page(tmp_path, "ruby", "ruby", "page.rb", "main.rb")
    play(shop, tmp_path, "ruby", "main.rb", client)
    assert_created(shop_owner, compact=True)


def test_php(shop: str, shop_owner: str, tmp_path: Path) -> None:
    page(tmp_path, "php", "php", "page.php", "main.php")
    play(shop, tmp_path, "php", "main.php")
    assert_created(shop_owner, compact=True)


async def test_rails_migrates(new_database: str, tmp_path: Path) -> None:
    [migration] = blocks("docs/schema.md", "ruby")
    (tmp_path / "outbox.sql").write_text(script())
    (tmp_path / "outbox.rb").write_text(migration)
    shutil.copy(DRIVERS / "migrate.rb", tmp_path)
    play(new_database, tmp_path, "ruby", "migrate.rb")
    assert (await compare(new_database)).verdict == "same"
    assert await migrate(new_database) == []


def test_a_receiver_in_javascript_has_one_effect_for_each_key(new_database: str, tmp_path: Path) -> None:
    code = snippet("docs/deduplication.md", "javascript")
    (tmp_path / "page.mjs").write_text(code)
    (tmp_path / "hurried.mjs").write_text(code.replace("'5s'", "'100ms'"))
    (tmp_path / "node_modules").symlink_to(modules())
    shutil.copy(DRIVERS / "receiver.mjs", tmp_path)
    with psycopg.connect(new_database, autocommit=True) as connection:
        connection.execute(snippet("docs/deduplication.md", "table").encode())
        connection.execute("CREATE TABLE account AS SELECT 0 AS balance")
    play(new_database, tmp_path, "node", "receiver.mjs")
