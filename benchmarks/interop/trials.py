"""One server, direct and through the proxy: check all answers, then measure in rounds."""

import asyncio
import contextlib
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import grpc

from benchmarks.harness.environments import environment
from benchmarks.harness.marks import ratio_interval
from benchmarks.harness.paths import CACHE
from benchmarks.harness.rounds import Round, Target, Tell, interleave, measure
from benchmarks.harness.wrk import run_wrk
from benchmarks.interop.catalogue import READY_PATH, REQUIREMENTS, Service, proxy_command
from benchmarks.interop.checked import Checked, check
from benchmarks.peers.entrants import Work, running
from uncork_loadtests.compare import Interval
from uncork_loadtests.servers import HOST, BenchError, reserved_port, serve

DIRECT, PROXY = "direct", "proxy"
_GRPC_READY_SECONDS = 30.0


@dataclass(frozen=True, kw_only=True)
class Way:
    """The measurements of a server on one way."""

    name: str
    """DIRECT or PROXY."""
    checked: Checked
    rounds: Sequence[Round]
    """None over gRPC."""

    @property
    def faults(self) -> list[str]:
        """Refused requests and lost connections of the rounds."""
        refused = [f"{each.refused} requests refused" for each in self.rounds if each.refused]
        return [*refused, *(each.fault for each in self.rounds if each.fault)]


@dataclass(frozen=True, kw_only=True)
class Finding:
    """The result for one server."""

    service: str
    ways: Sequence[Way]
    ratio: Interval | None
    """Requests per second through the proxy by those without it, round by round."""


def try_service(service: Service, *, rounds: int, seconds: float, clients: int, tell: Tell) -> Finding:
    """Start a server and a proxy in front of it, check answers, and over HTTP measure in rounds.

    Raises:
        WrongAnswerError: if the answer to a single request is wrong.
        BenchError: if a server does not start or answer.
    """
    work = service.work(clients=clients)
    tell(f"environment of {service.project}")
    requirements = [*REQUIREMENTS[service.project], *work.requirements]
    made = environment(CACHE / service.project, requirements=requirements)
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        tell(f"starting {service.name}")
        command = service.command(work=work, environment=made, folder=folder)
        targets: dict[str, Target] = {}
        if service.dialect.is_grpc:
            addresses = _grpc_addresses(stack, command)
        else:
            for name, each in _targets(stack, service, command, work).items():
                targets[name] = replace(each, plan=replace(each.plan, clients=clients, seconds=seconds))
            addresses = {name: each.plan.url for name, each in targets.items()}
        checked = {}
        for name, address in addresses.items():
            tell(f"{service.name}: checking answers, {name}")
            checking = check(address, dialect=service.dialect, work=work, clients=clients)
            checked[name] = asyncio.run(checking)
        measured = interleave(
            targets,
            rounds=rounds,
            # wrk takes little from the two cores that it shares with the servers; answers are checked before.
            measure=lambda name, _: measure(targets[name], load=run_wrk),
            tell=tell,
            title=service.name,
        )
    return finding(service.name, checked=checked, rounds=measured)


def finding(
    service: str, *, checked: Mapping[str, Checked], rounds: Mapping[str, Sequence[Round]]
) -> Finding:
    """Combine the measurements, by way."""
    ways = [Way(name=name, checked=found, rounds=rounds.get(name, ())) for name, found in checked.items()]
    rates = {way.name: [each.requests_per_second for each in way.rounds] for way in ways}
    return Finding(service=service, ways=ways, ratio=ratio_interval(rates[PROXY], by=rates[DIRECT]))


def _targets(
    stack: contextlib.ExitStack, service: Service, command: Sequence[str], work: Work
) -> dict[str, Target]:
    """Run a server and a proxy in front of it, for requests over HTTP."""
    found = {}
    for name, ready_path in ((DIRECT, READY_PATH), (PROXY, "/readyz")):
        entrant = service.entrant(name, command=command, ready_path=ready_path)
        found[name] = stack.enter_context(running(entrant, work=work))
        command = proxy_command(found[name].server.url(""))
    return found


def _grpc_addresses(stack: contextlib.ExitStack, command: Sequence[str]) -> dict[str, str]:
    """Run a server and a proxy in front of it, for gRPC calls."""
    found = {}
    for name, ready_path in ((DIRECT, READY_PATH), (PROXY, "/readyz")):
        port = stack.enter_context(reserved_port())
        found[name] = f"{HOST}:{port}"
        whole = [*command, "--grpc-port", str(port)]
        server = stack.enter_context(serve(name, command=whole, ready_path=ready_path))
        # A server may open the port after it is ready over HTTP.
        with grpc.insecure_channel(found[name]) as channel:
            try:
                grpc.channel_ready_future(channel).result(timeout=_GRPC_READY_SECONDS)
            except grpc.FutureTimeoutError as error:
                raise BenchError(f"{name} does not serve gRPC: {server.last_words()}") from error
        command = proxy_command(f"grpc://{found[name]}")
    return found
