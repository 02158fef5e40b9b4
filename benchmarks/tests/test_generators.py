"""The generators as a bench runs them."""

import os
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from benchmarks.harness.generators import Traffic, measure
from uncork_loadtests.servers import HOST, Server

ANSWER = b"\x93NUMPY\n\0\xff\n"


class Picky(BaseHTTPRequestHandler):
    """Answers with bytes that are no text, but only those who ask for them."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        """Answer."""
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200 if self.headers["Accept"] == "application/x-npy" else 406)
        self.send_header("Content-Length", str(len(ANSWER)))
        self.end_headers()
        self.wfile.write(ANSWER)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


def test_requests_have_further_fields_and_answers_may_be_any_bytes() -> None:
    """They are sent, and compared, as they are."""
    with ThreadingHTTPServer((HOST, 0), Picky) as serving:
        threading.Thread(target=serving.serve_forever, daemon=True).start()
        server = Server(name="picky", command=(), port=serving.server_port, pid=os.getpid())
        traffic = Traffic(
            path="/",
            bodies=[b"[1.5]"],
            expected=[ANSWER],
            connections=1,
            seconds=0.05,
            headers={"Accept": "application/x-npy"},
        )
        trial = measure(server, traffic=traffic, generator="python")
        serving.shutdown()

    assert (trial.seen.fault, trial.seen.refused) == ("", 0)
    assert trial.seen.answers > 0
