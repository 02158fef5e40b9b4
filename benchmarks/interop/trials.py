"""One server, asked directly and through the proxy: all answers checked, then rates in turns."""

import asyncio
import contextlib
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.harness.batch_counts import batches
from benchmarks.harness.environments import Environment, environment
from benchmarks.interop.catalogue import READY_PATH, REQUIREMENTS, Target, proxy_command
from benchmarks.interop.checked import Checked, check
from benchmarks.peers.entrants import Running, Work, running
from benchmarks.peers.judge import ratios, values
from benchmarks.peers.loads import ClosedLoop, Round
from uncork_loadtests.intervals import Interval, median_interval

DIRECT, PROXY = "direct", "proxy"
Tell = Callable[[str], None]
"""Called with what is being done now, in a few words."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What the user chose."""

    rounds: int
    seconds: float
    """Of each measurement."""
    clients: int


@dataclass(frozen=True, kw_only=True)
class Way:
    """What was seen on one way to a server."""

    name: str
    """DIRECT or PROXY."""
    checked: Checked
    rounds: Sequence[Round]
    rows_per_call: Sequence[float | None]
    """In each round; None where the calls are not counted."""

    @property
    def faults(self) -> list[str]:
        """What went wrong in the rounds: refused requests, lost connections."""
        refused = [f"{each.refused} requests refused" for each in self.rounds if each.refused]
        return [*refused, *(each.fault for each in self.rounds if each.fault)]


@dataclass(frozen=True, kw_only=True)
class Finding:
    """What was found for one server."""

    target: str
    ways: Sequence[Way]
    ratio: Interval | None
    """Requests per second through the proxy by those without it, round by round."""


def server_environment(target: Target, *, work: Work, cache: Path) -> Environment:
    """Give the environment of a server, with what its model needs; BenchError if pip fails."""
    requirements = [*REQUIREMENTS[target.project], *work.requirements]
    return environment(cache / target.project, requirements=requirements)


def measure(target: Target, *, cache: Path, settings: Settings, tell: Tell) -> Finding:
    """Start a server and a proxy before it, check answers, measure in turns.

    Raises BenchError if one does not start or answer, WrongAnswerError if it answers a lone request wrong.
    """
    work = target.work(clients=settings.clients)
    tell(f"environment of {target.project}")
    made = server_environment(target, work=work, cache=cache)
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        tell(f"starting {target.name}")
        command = target.command(work=work, environment=made, folder=folder)
        entrant = target.entrant(DIRECT, command=command, ready_path=READY_PATH)
        server = stack.enter_context(running(entrant, work=work))
        entrant = target.entrant(PROXY, command=proxy_command(server.server), ready_path="/readyz")
        proxy = stack.enter_context(running(entrant, work=work))
        asked = {DIRECT: server, PROXY: proxy}
        checked = {}
        for name, each in asked.items():
            tell(f"{target.name}: checking answers, {name}")
            url = each.server.url(target.dialect.path)
            checked[name] = asyncio.run(
                check(url, dialect=target.dialect, work=work, clients=settings.clients)
            )
        seen: dict[str, list[tuple[Round, float | None]]] = {name: [] for name in asked}
        for turn in range(1, settings.rounds + 1):
            # In turns: what else the machine does then falls on both alike.
            for name, each in asked.items():
                tell(f"{target.name}: round {turn} of {settings.rounds}, {name}")
                seen[name].append(_round(each, settings=settings, turn=turn))
    return finding(target.name, checked=checked, seen=seen)


def finding(
    target: str, *, checked: Mapping[str, Checked], seen: Mapping[str, Sequence[tuple[Round, float | None]]]
) -> Finding:
    """Put together what was seen, by the way."""
    ways = [
        Way(
            name=name,
            checked=checked[name],
            rounds=[each for each, _ in found],
            rows_per_call=[rows for _, rows in found],
        )
        for name, found in seen.items()
    ]
    rates = {way.name: values(way.rounds, figure="requests_per_second") for way in ways}
    found = ratios(rates[PROXY], by=rates[DIRECT])
    return Finding(target=target, ways=ways, ratio=median_interval(found) if found else None)


def _round(each: Running, *, settings: Settings, turn: int) -> tuple[Round, float | None]:
    """Figures, and rows per call if there is a proxy that counts them."""
    # It takes little from the two cores that it shares with the servers; answers are checked before.
    load = ClosedLoop(connections=settings.clients, seconds=settings.seconds, generator="wrk")
    before = batches(each.server)
    found = load.measure(each, turn=turn)
    after = batches(each.server)
    if before is None or after is None or after[0] == before[0]:
        return found, None
    return found, (after[1] - before[1]) / (after[0] - before[0])
