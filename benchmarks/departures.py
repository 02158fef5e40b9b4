"""How long a worker stays busy after the last client of its batch has left.

    scripts/bench departures --rounds 5

Clients send requests to handlers that take 5 s, and close their connections after 1.5 s. The times are those
until the worker has answered a request that arrives then.
"""

from __future__ import annotations

import socket
import time
from statistics import median
from typing import Annotated

import httpx
import typer
from rich.console import Console

from benchmarks.harness.cli import MarkdownFile, exit_with, reporting_failures
from benchmarks.harness.paths import SERVICES
from benchmarks.harness.sheets import Sheet, markdown, output, show
from uncork_loadtests.servers import HOST, Server
from uncork_loadtests.targets import our_service

_SERVICE = f"{SERVICES / 'departures.py'}:Departures"
_LEAVE_AFTER_S = 1.5
_OK = 200

HANDLERS = {
    "/plain": "plain, never asks",
    "/asks": "asks `context().cancelled` every 10 ms",
    "/async": "async",
}


def main(
    rounds: Annotated[int, typer.Option(min=1, help="Measurements of each handler, in turns.")] = 3,
    markdown_file: MarkdownFile = None,
) -> None:
    """Measure the seconds from the last departure to a free worker."""
    progress = Console(stderr=True)
    found: dict[tuple[str, int], list[float]] = {}
    with reporting_failures("departures", progress=progress), our_service(_SERVICE) as server:
        for number in range(1, rounds + 1):
            for path in HANDLERS:
                for clients in (1, 8):
                    progress.print(f"round {number}: {path}, {clients} clients")
                    found.setdefault((path, clients), []).append(busy_s(server, path, clients))
    rows = [
        [HANDLERS[path], str(clients), f"{median(times):.3f}", f"{max(times):.3f}"]
        for (path, clients), times in found.items()
    ]
    sheet = Sheet(
        title="Seconds from the last departure to a free worker",
        columns=["handler", "clients", "median", "longest"],
        rows=rows,
    )
    show(sheet, console=output())
    if markdown_file is not None:
        markdown_file.write_text(markdown(sheet))
    exit_with([], progress=progress)


def busy_s(server: Server, path: str, clients: int) -> float:
    """Return the seconds until the worker answers after clients have left, whose requests share a batch."""
    with httpx.Client(timeout=60.0) as http:
        connections = [socket.create_connection((HOST, server.port)) for _ in range(clients)]
        for connection in connections:
            connection.sendall(
                b"POST %b HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\ncontent-length: 1\r\n\r\n1"
                % path.encode()
            )
        time.sleep(_LEAVE_AFTER_S)
        for connection in connections:
            connection.close()
        began = time.perf_counter()
        reply = http.post(server.url("/free"), json=1)
        if reply.status_code != _OK:
            raise OSError(f"the next request got {reply.status_code}: {reply.text}")
        return time.perf_counter() - began


if __name__ == "__main__":
    typer.run(main)
