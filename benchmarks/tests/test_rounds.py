"""One measurement of a server by the generator of the load test."""

import os
import threading
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from benchmarks.harness.rounds import measure, target
from uncork_loadtests.servers import HOST, Server

ANSWER = b"\x93NUMPY\n\0\xff\n"


class Picky(BaseHTTPRequestHandler):
    """Answers requests for .npy with bytes that are not text."""

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
    with ThreadingHTTPServer((HOST, 0), Picky) as serving:
        threading.Thread(target=serving.serve_forever, daemon=True).start()
        server = Server(name="picky", command=(), port=serving.server_port, pid=os.getpid())
        each = target(server, path="/", bodies=[b"[1.5]"], expected=[ANSWER])
        plan = replace(each.plan, seconds=0.05, warmup_s=0.0, headers=(("Accept", "application/x-npy"),))
        found = measure(replace(each, plan=plan))
        serving.shutdown()

    assert (found.fault, found.refused, found.wrong) == ("", 0, 0)
    assert found.requests_per_second > 0
    assert found.all_cpu is not None
