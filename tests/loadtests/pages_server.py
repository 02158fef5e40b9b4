"""An HTTP server with fixed pages."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from uncork_loadtests.servers import Server


@contextmanager
def serving_pages(pages: dict[str, bytes]) -> Iterator[Server]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            known = self.path in pages
            self.send_response(200 if known else 401)
            self.end_headers()
            self.wfile.write(pages[self.path] if known else b"no")

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as http:
        thread = threading.Thread(target=http.serve_forever, args=(0.01,))
        thread.start()
        yield Server(name="it", command=(), port=http.server_port, pid=0)
        http.shutdown()
        thread.join()


def status(*shown: dict[str, object]) -> bytes:
    return json.dumps({"state": "ready", "apis": [{**one, "policy": "cork"} for one in shown]}).encode()
