"""One server, direct and through the proxy: check all answers, then measure in rounds."""

import asyncio
import contextlib
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.harness.environments import Environment, environment
from benchmarks.harness.marks import ratio_interval
from benchmarks.harness.rounds import Round, Tell, interleave
from benchmarks.interop.catalogue import REQUIREMENTS, Service
from benchmarks.interop.checked import Checked, check
from benchmarks.interop.ways import DIRECT, PROXY, grpc_ways, http_ways
from benchmarks.peers.entrants import Work
from uncork_loadtests.compare import Interval


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The user's choices."""

    rounds: int
    seconds: float
    """Of each measurement."""
    clients: int


@dataclass(frozen=True, kw_only=True)
class Way:
    """The measurements of a server on one way."""

    name: str
    """DIRECT or PROXY."""
    checked: Checked
    rounds: Sequence[Round]

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


def server_environment(service: Service, *, work: Work, cache: Path) -> Environment:
    """Return the environment of a server and its model; raise BenchError if pip fails."""
    requirements = [*REQUIREMENTS[service.project], *work.requirements]
    return environment(cache / service.project, requirements=requirements)


def try_service(service: Service, *, cache: Path, settings: Settings, tell: Tell) -> Finding:
    """Start a server and a proxy in front of it, check answers, measure in rounds.

    Raises:
        WrongAnswerError: if the answer to a single request is wrong.
        BenchError: if a server does not start or answer.
    """
    work = service.work(clients=settings.clients)
    tell(f"environment of {service.project}")
    made = server_environment(service, work=work, cache=cache)
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        tell(f"starting {service.name}")
        command = service.command(work=work, environment=made, folder=folder)
        start = grpc_ways if service.dialect.is_grpc else http_ways
        ways = stack.enter_context(start(service, command=command, work=work, folder=folder))
        checked = {}
        for name, way in ways.items():
            tell(f"{service.name}: checking answers, {name}")
            checking = check(way.target, dialect=service.dialect, work=work, clients=settings.clients)
            checked[name] = asyncio.run(checking)
        rounds = interleave(
            ways,
            rounds=settings.rounds,
            measure=lambda name, _: ways[name].measure(settings.clients, settings.seconds),
            tell=tell,
            title=service.name,
        )
    return finding(service.name, checked=checked, rounds=rounds)


def finding(
    service: str, *, checked: Mapping[str, Checked], rounds: Mapping[str, Sequence[Round]]
) -> Finding:
    """Combine the measurements, by way."""
    ways = [Way(name=name, checked=checked[name], rounds=found) for name, found in rounds.items()]
    rates = {way.name: [each.requests_per_second for each in way.rounds] for way in ways}
    return Finding(service=service, ways=ways, ratio=ratio_interval(rates[PROXY], by=rates[DIRECT]))
