"""The receiver of docker-compose.yml: answers 204 and says what it got. docs/receivers.md says how to verify it."""

import os
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Receiver(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        """Take one delivery."""
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        sys.stdout.write(f"{self.headers['Relay-Topic']} {self.headers['Idempotency-Key']} {body}\n")
        sys.stdout.flush()
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Leave out the usual line."""


ThreadingHTTPServer((os.environ["HOST"], int(os.environ["PORT"])), Receiver).serve_forever()
