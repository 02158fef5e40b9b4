"""The processor time of one call in the transport: our gRPC beside grpc.aio and our HTTP/1.1.

``scripts/bench grpc-cost`` runs it, and needs h2load. Each server returns the message, in a process of its
own; they are measured in turns. For whole gateways see ``scripts/bench grpc``.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from typing import Annotated, NamedTuple

import psutil
import typer
from rich.console import Console

from benchmarks.costs.echo_servers import GRPC_AIO, HTTP, OWN, READY, SERVERS
from benchmarks.harness.cli import reporting_failures
from benchmarks.harness.grpc_wire import prefixed
from benchmarks.harness.h2load import H2Load, require_h2load, run_h2load
from benchmarks.harness.marks import ratio_interval
from benchmarks.harness.sheets import Sheet, interval_text, output, show, text
from uncork_loadtests.servers import HOST, BenchError, reserved_port

_SMALL_BYTES, _LARGE_BYTES = 200, 2**20
_WARM_UP_S = 0.5
_HEADERS = {"te": "trailers", "content-type": "application/grpc"}


class Load(NamedTuple):
    """A closed loop; HTTP/1.1 has a connection for each open call."""

    title: str
    body_bytes: int
    connections: int
    calls: int


LOADS = (
    Load("200 B, 1 caller", _SMALL_BYTES, 1, 1),
    Load("200 B, 64 connections", _SMALL_BYTES, 64, 1),
    Load("200 B, 64 calls on one connection", _SMALL_BYTES, 1, 64),
    Load("1 MiB, 1 caller", _LARGE_BYTES, 1, 1),
)


class Process(NamedTuple):
    """A running echo server."""

    port: int
    pid: int


def main(
    rounds: Annotated[int, typer.Option(min=1, help="Measurements of each server and load.")] = 7,
    seconds: Annotated[float, typer.Option(min=0.1, help="Seconds of each measurement.")] = 2.0,
) -> None:
    """Print microseconds of processor time per call."""
    progress = Console(stderr=True)
    with reporting_failures("bench-grpc-cost", progress=progress), ExitStack() as stack:
        require_h2load()
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        servers = {name: stack.enter_context(running(name)) for name in SERVERS}
        rows = []
        for load in LOADS:
            with progress.status(load.title):
                rows.append(_row(load, servers, folder, rounds=rounds, seconds=seconds))
    columns = ["load", *(f"{name} µs" for name in SERVERS), f"{OWN} / {HTTP}", f"{GRPC_AIO} / {OWN}"]
    title = "Processor time of the server's process per call, user and system; medians of the rounds"
    show(Sheet(title=title, columns=columns, rows=rows), console=output())


@contextmanager
def running(transport: str) -> Iterator[Process]:
    """Run an echo server until the block ends.

    Raises:
        BenchError: if it does not start.
    """
    with reserved_port() as port:
        command = [sys.executable, "-m", "benchmarks.costs.echo_servers", transport, str(port)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        try:
            if process.stdout.readline().strip() != READY:
                raise BenchError(f"the echo server of {transport} does not start")
            yield Process(port, process.pid)
        finally:
            process.terminate()
            process.wait()
            process.stdout.close()


def cost_us(load: Load, transport: str, server: Process, *, body: Path, seconds: float) -> float:
    """Return microseconds of processor time per call.

    Raises:
        BenchError: if a call fails.
    """
    is_http = transport == HTTP
    sent = bytes(load.body_bytes)
    body.write_bytes(sent if is_http else prefixed(sent))
    loop = H2Load(
        url=f"http://{HOST}:{server.port}/t.T/Echo",
        body=body,
        headers={} if is_http else _HEADERS,
        http1=is_http,
        connections=load.connections * load.calls if is_http else load.connections,
        calls=1 if is_http else load.calls,
    )
    run_h2load(loop, seconds=_WARM_UP_S)
    process = psutil.Process(server.pid)
    before = process.cpu_times()
    result = run_h2load(loop, seconds=seconds)
    after = process.cpu_times()
    if result.failed or not result.answers:
        raise BenchError(f"{transport}: {result.failed} of {result.answers} calls failed")
    return (after.user + after.system - before.user - before.system) / result.answers * 1e6


def _row(
    load: Load, servers: Mapping[str, Process], folder: Path, *, rounds: int, seconds: float
) -> list[str]:
    costs: dict[str, list[float]] = {name: [] for name in servers}
    for _ in range(rounds):
        for name, server in servers.items():
            costs[name].append(cost_us(load, name, server, body=folder / "body", seconds=seconds))
    return [
        load.title,
        *(text(median(each), digits=0) for each in costs.values()),
        interval_text(ratio_interval(costs[OWN], by=costs[HTTP])),
        interval_text(ratio_interval(costs[GRPC_AIO], by=costs[OWN])),
    ]


if __name__ == "__main__":
    typer.run(main)
