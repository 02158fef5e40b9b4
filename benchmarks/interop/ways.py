"""The two ways to a server: direct, and through the proxy."""

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import grpc

from benchmarks.harness.grpc_wire import prefixed
from benchmarks.harness.h2load import H2Load, measure_h2load
from benchmarks.harness.rounds import Round, Target, measure
from benchmarks.harness.wrk import run_wrk
from benchmarks.interop.catalogue import READY_PATH, Service, proxy_command
from benchmarks.peers.entrants import Work, running
from uncork_loadtests.servers import HOST, BenchError, Server, reserved_port, serve

DIRECT, PROXY = "direct", "proxy"
_GRPC_READY_SECONDS = 30.0
_GRPC_HEADERS = {"content-type": "application/grpc", "te": "trailers"}


@dataclass(frozen=True, kw_only=True)
class OpenWay:
    """A way to a running server."""

    target: str
    """The URL of requests, or the address of a gRPC server."""
    measure: Callable[[int, float], Round]
    """Measures with so many clients for so many seconds."""


@contextlib.contextmanager
def http_ways(
    service: Service, *, command: Sequence[str], work: Work, folder: Path
) -> Iterator[Mapping[str, OpenWay]]:
    """Run a server and a proxy in front of it, for requests over HTTP.

    Raises:
        WrongAnswerError: if the answer to a single request is wrong.
        BenchError: if one of them does not start or answer.
    """
    entrant = service.entrant(DIRECT, command=command, ready_path=READY_PATH)
    with running(entrant, work=work) as server:
        through = proxy_command(server.server.url(""))
        entrant = service.entrant(PROXY, command=through, ready_path="/readyz")
        with running(entrant, work=work) as proxy:
            yield {DIRECT: _with_wrk(server), PROXY: _with_wrk(proxy)}


@contextlib.contextmanager
def grpc_ways(
    service: Service, *, command: Sequence[str], work: Work, folder: Path
) -> Iterator[Mapping[str, OpenWay]]:
    """Run a server and a proxy in front of it, for gRPC calls; ``folder`` is for the generator's request.

    Raises:
        BenchError: if one of them does not start.
    """
    message, body = service.dialect.write(work.rows[:1], "1"), folder / "call"
    body.write_bytes(prefixed(message))

    def way(name: str, server: Server) -> OpenWay:
        _await_grpc(address[name], server)
        load = H2Load(url=f"http://{address[name]}{service.dialect.path}", body=body, headers=_GRPC_HEADERS)
        return OpenWay(
            target=address[name],
            measure=lambda clients, seconds: measure_h2load(
                server, replace(load, connections=clients), seconds=seconds
            ),
        )

    with contextlib.ExitStack() as stack:
        ports = {name: stack.enter_context(reserved_port()) for name in (DIRECT, PROXY)}
        address = {name: f"{HOST}:{port}" for name, port in ports.items()}
        through = proxy_command(f"grpc://{address[DIRECT]}")
        ways = {}
        for name, start, ready_path in ((DIRECT, command, READY_PATH), (PROXY, through, "/readyz")):
            whole = [*start, "--grpc-port", str(ports[name])]
            ways[name] = way(name, stack.enter_context(serve(name, command=whole, ready_path=ready_path)))
        yield ways


def _with_wrk(each: Target) -> OpenWay:
    def measure_one(clients: int, seconds: float) -> Round:
        plan = replace(each.plan, clients=clients, seconds=seconds)
        # wrk takes little from the two cores that it shares with the servers; answers are checked before.
        return measure(replace(each, plan=plan), load=run_wrk)

    return OpenWay(target=each.plan.url, measure=measure_one)


def _await_grpc(address: str, server: Server) -> None:
    """Wait for the port, which a server may open after it is ready over HTTP."""
    with grpc.insecure_channel(address) as channel:
        try:
            grpc.channel_ready_future(channel).result(timeout=_GRPC_READY_SECONDS)
        except grpc.FutureTimeoutError as error:
            raise BenchError(f"{server.name} does not serve gRPC: {server.last_words()}") from error
