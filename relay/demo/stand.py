"""`make stand`: a PostgreSQL and a receiver to try the relay with, at fixed addresses, until Ctrl-C.

`python -m relay.demo.stand psql [ARGUMENT...]` (`make psql`) is a psql session with that PostgreSQL.
"""

import os
import signal
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from relay.demo.nest import Nest
from relay.demo.postgres import Postgres, find_binaries
from relay.errors import RelayError

POSTGRES_PORT = 54320
RECEIVER_PORT = 8099
DATABASE = "shop"
DSN = f"postgresql://postgres@127.0.0.1:{POSTGRES_PORT}/{DATABASE}"


class Receiver(BaseHTTPRequestHandler):
    """Prints each request; accepts all but those whose payload says "refuse"."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        """Take one delivery."""
        body = self.rfile.read(int(self.headers["Content-Length"])).decode(errors="replace")
        status = 422 if '"refuse"' in body else 204
        headers = "".join(f"  {name}: {value}\n" for name, value in self.headers.items())
        print(f"POST {self.path}\n{headers}\n  {body}\n\nanswered {status}\n", flush=True)
        self.send_response(status)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Leave out the usual line."""


def stand() -> int:
    """Serve both until SIGINT or SIGTERM; the exit code."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    try:
        with ThreadingHTTPServer(("127.0.0.1", RECEIVER_PORT), Receiver) as receiver, Nest() as nest:
            postgres = Postgres(nest, tcp=True)
            postgres.port = POSTGRES_PORT
            with postgres:
                postgres.create_database(DATABASE)
                print(f"PostgreSQL {DSN}\nreceiver   http://127.0.0.1:{RECEIVER_PORT}/\nCtrl-C ends both", flush=True)
                receiver.serve_forever()
    except KeyboardInterrupt:
        return 0
    except (OSError, RelayError) as error:
        print(
            f"cannot serve at 127.0.0.1:{POSTGRES_PORT} and 127.0.0.1:{RECEIVER_PORT}: {error}\n"
            "where an address is in use, end what has it: another `make stand`, perhaps",
            file=sys.stderr,
        )
    return 1


def psql(*arguments: str) -> None:
    """Become psql, connected to the stand."""
    program = str(find_binaries() / "psql")
    os.execv(program, [program, DSN, *arguments])  # noqa: S606 - a program of ours, and no shell


if __name__ == "__main__":
    if sys.argv[1:2] == ["psql"]:
        psql(*sys.argv[2:])
    sys.exit(stand())
