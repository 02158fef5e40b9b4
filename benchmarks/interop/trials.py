"""One server, direct and through the proxy: check all answers, then measure in rounds."""

import asyncio
import contextlib
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.harness.environments import Environment, environment
from benchmarks.harness.marks import ratio_interval
from benchmarks.harness.rounds import Round, Tell, interleave, measure
from benchmarks.interop.catalogue import READY_PATH, REQUIREMENTS, Service, proxy_command
from benchmarks.interop.checked import Checked, check
from benchmarks.peers.entrants import Work, running
from uncork_loadtests.intervals import Interval

DIRECT, PROXY = "direct", "proxy"


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
        entrant = service.entrant(DIRECT, command=command, ready_path=READY_PATH)
        server = stack.enter_context(running(entrant, work=work))
        entrant = service.entrant(PROXY, command=proxy_command(server.server), ready_path="/readyz")
        proxy = stack.enter_context(running(entrant, work=work))
        targets = {DIRECT: server, PROXY: proxy}
        checked = {}
        for name, each in targets.items():
            tell(f"{service.name}: checking answers, {name}")
            checking = check(each.plan.url, dialect=service.dialect, work=work, clients=settings.clients)
            checked[name] = asyncio.run(checking)

        def measure_one(name: str, _: int) -> Round:
            plan = replace(targets[name].plan, clients=settings.clients, seconds=settings.seconds)
            # wrk takes little from the two cores that it shares with the servers; answers are checked before.
            return measure(replace(targets[name], plan=plan), generator="wrk")

        rounds = interleave(
            targets, rounds=settings.rounds, measure=measure_one, tell=tell, title=service.name
        )
    return finding(service.name, checked=checked, rounds=rounds)


def finding(
    service: str, *, checked: Mapping[str, Checked], rounds: Mapping[str, Sequence[Round]]
) -> Finding:
    """Combine the measurements, by way."""
    ways = [Way(name=name, checked=checked[name], rounds=found) for name, found in rounds.items()]
    rates = {way.name: [each.requests_per_second for each in way.rounds] for way in ways}
    return Finding(service=service, ways=ways, ratio=ratio_interval(rates[PROXY], by=rates[DIRECT]))
