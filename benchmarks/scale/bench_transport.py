"""Measure what it costs to reach a worker over TCP and TLS instead of a Unix socket.

``scripts/bench transport`` runs it, and prints docs/results/transport.md with ``--page``. All three gateways
run at the same time, and are measured in turns.
"""

from __future__ import annotations

import json
import secrets
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import trustme
import typer
from rich.console import Console

from benchmarks.harness.cli import reporting_failures
from benchmarks.harness.commands import uncork_serve
from benchmarks.harness.marks import ratio_interval
from benchmarks.harness.paths import SERVICES
from benchmarks.harness.report import ResultPage
from benchmarks.harness.rounds import Round, Target, ask_alone, interleave, measure, target
from benchmarks.harness.sheets import Sheet, interval_text, median_known, output, show, text
from uncork_loadtests.servers import HOST, Server, reserved_port, serve

UNIX, TCP, TLS = "Unix socket", "TCP", "TLS"
_ECHO = f"{SERVICES / 'echo.py'}:Echo"
_PATH = "/echo"
_SIZES = {"1 kB": 1_000, "100 kB": 100_000, "10 MB": 10_000_000}
# Above the delay of any number of clients here, so that nothing is shed.
_OPTIONS: Mapping[str, object] = {"--mb-max-latency": 60_000, "--max-body-bytes": 2 * max(_SIZES.values())}
_END_S = 10.0
PAGE = ResultPage(
    title="Workers over a Unix socket, TCP and TLS",
    introduction="What the connection between gateway and worker costs, through the whole gateway. For "
    "what follows from it, see [workers on other machines](../guides/workers-elsewhere.md).",
    script="scripts/bench transport",
)


def main(
    rounds: Annotated[int, typer.Option(min=1, help="Measurements of each cell.")] = 7,
    seconds: Annotated[float, typer.Option(min=0.1, help="Seconds of each measurement.")] = 1.0,
    clients: Annotated[int, typer.Option(min=2, help="Clients, besides one alone.")] = 4,
    page: Annotated[bool, typer.Option("--page", help="Print the page of docs/results.")] = False,
) -> None:
    """Measure an echo service with one worker over each connection."""
    progress = Console(stderr=True)
    with reporting_failures("bench-transport", progress=progress), transports() as servers:
        sheets = [
            _sheet(servers, size, bytes_, clients=count, rounds=rounds, seconds=seconds, progress=progress)
            for count in (1, clients)
            for size, bytes_ in _SIZES.items()
        ]
    if page:
        print(PAGE.text(paragraphs=[_METHOD], sheets=sheets), end="")
        return
    for sheet in sheets:
        show(sheet, console=output())


_METHOD = (
    "The service returns its input, a JSON string of the size in the title. Its only worker is on this "
    "machine, so the network itself costs nothing here. Ratios are medians of the rounds, with their 95 % "
    "intervals. *Gateway* is the processor time of the gateway's process per request."
)


@contextmanager
def transports() -> Iterator[dict[str, Server]]:
    """Run a gateway for each connection, with one worker each."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        token = folder / "token"
        token.write_text(secrets.token_hex())
        certificate, ca = folder / "certificate.pem", folder / "ca.pem"
        authority = trustme.CA()
        authority.issue_cert(HOST).private_key_and_cert_chain_pem.write_to_path(str(certificate))
        authority.cert_pem.write_to_path(str(ca))
        servers = {UNIX: stack.enter_context(serve(UNIX, command=uncork_serve(_ECHO, _OPTIONS)))}
        secured = {"--worker-tls-cert": certificate}
        for name, more, dialing in ((TCP, {}, []), (TLS, secured, ["--ca", str(ca)])):
            port = stack.enter_context(reserved_port())
            options = {
                **_OPTIONS,
                "--workers": 0,
                "--worker-port": port,
                "--worker-token-file": token,
                **more,
            }
            stack.enter_context(_worker(f"{HOST}:{port}", token, dialing))
            servers[name] = stack.enter_context(serve(name, command=uncork_serve(_ECHO, options)))
        yield servers


@contextmanager
def _worker(gateway: str, token: Path, options: Sequence[str]) -> Iterator[None]:
    """Run a worker that connects to a gateway as soon as that listens."""
    command = [sys.executable, "-m", "uncork", "worker", _ECHO, "--gateway", gateway]
    process = subprocess.Popen(
        [*command, "--token-file", str(token), "--log-level", "error", *options], start_new_session=True
    )
    try:
        yield
    finally:
        process.terminate()
        process.wait(_END_S)


def _sheet(
    servers: Mapping[str, Server],
    size: str,
    bytes_: int,
    *,
    clients: int,
    rounds: int,
    seconds: float,
    progress: Console,
) -> Sheet:
    title = f"{size}, {'one client' if clients == 1 else f'{clients} clients'}"
    targets = {name: _target(server, bytes_, clients, seconds) for name, server in servers.items()}
    found = interleave(
        targets,
        rounds=rounds,
        measure=lambda name, _: measure(targets[name]),
        tell=progress.print,
        title=title,
    )
    return Sheet(
        title=title,
        columns=[
            "connection",
            "requests/s",
            "p50 ms",
            "p50 / Unix",
            "p99 ms",
            "gateway ms",
            "gateway / Unix",
        ],
        rows=[_row(name, each, found[UNIX]) for name, each in found.items()],
        notes=[],
    )


def _target(server: Server, bytes_: int, clients: int, seconds: float) -> Target:
    body = json.dumps("x" * (bytes_ - 2)).encode()
    each = target(server, path=_PATH, bodies=[body], expected=ask_alone(server, path=_PATH, bodies=[body]))
    return replace(each, plan=replace(each.plan, clients=clients, seconds=seconds, warmup_s=0.2))


def _row(name: str, rounds: Sequence[Round], unix: Sequence[Round]) -> list[str]:
    p50, cpu = [one.p50 for one in rounds], [one.front_cpu for one in rounds]
    return [
        name,
        text(median_known(one.requests_per_second for one in rounds), digits=0),
        text(median_known(p50), digits=2, scale=1000),
        interval_text(ratio_interval(p50, by=[one.p50 for one in unix])),
        text(median_known(one.p99 for one in rounds), digits=2, scale=1000),
        text(median_known(cpu), digits=3),
        interval_text(ratio_interval(cpu, by=[one.front_cpu for one in unix])),
    ]


if __name__ == "__main__":
    typer.run(main)
