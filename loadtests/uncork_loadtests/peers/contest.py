"""All entrants under the same closed-loop load, in turns, round by round."""

import contextlib
import shlex
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from uncork_loadtests.generators import Trial, measure
from uncork_loadtests.peers.catalogue import Peer
from uncork_loadtests.peers.entrants import (
    OURS,
    Entrant,
    Running,
    Work,
    WrongAnswerError,
    entrants_of,
    ours,
    running,
)
from uncork_loadtests.peers.environments import Environment, environment
from uncork_loadtests.peers.judge import Ratio, metric_of, ratio_to_best
from uncork_loadtests.servers import BenchError

_CHECKED_CONNECTIONS = 32
_CHECKED_SECONDS = 1.0

Tell = Callable[[str], None]
"""Called with what is being done now, in a few words."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What the user chose."""

    connections: Sequence[int]
    rounds: int
    seconds: float
    """Of each measurement."""
    generator: str
    """python or wrk."""


@dataclass(frozen=True, kw_only=True)
class Point:
    """What was found for one model and one number of clients."""

    work: str
    connections: int
    limit: float | None
    """Requests per second that the model allows; None if not known."""
    trials: Mapping[str, Sequence[Trial]]
    """By the entrant's name, one for each round; `server_cpu` is that of the process that speaks HTTP."""
    all_cpu: Mapping[str, Sequence[float | None]]
    """The same way, processor seconds per 1000 requests of all processes of the server together."""
    ratio: Ratio | None
    """Ours by the best of the others."""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What was found for one model."""

    points: Sequence[Point]
    commands: Mapping[str, str]
    """By the entrant's name; the port is chosen anew each time."""
    left_out: Sequence[str]
    """Entrants that could not be measured, and why."""
    wrong: Sequence[str]
    """Entrants that answered wrong, and how."""


def compete(work: Work, *, peers: Sequence[Peer], cache: Path, settings: Settings, tell: Tell) -> Outcome:
    """Start Uncork and every peer with each of its settings, check their answers, measure them in turns.

    A peer that cannot be installed, does not start or breaks is left out; BenchError if it is Uncork.
    """
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        field, left_out = _field(work, peers=peers, cache=cache, folder=folder, tell=tell)
        there: dict[str, Running] = {}
        wrong: list[str] = []
        for entrant in [ours(work, folder=folder), *field]:
            tell(f"{work.name}: starting {entrant.name}")
            try:
                there[entrant.name] = stack.enter_context(running(entrant, work=work))
            except WrongAnswerError as error:
                wrong.append(f"{work.name}: {error}")
            except BenchError as error:
                _leave_out(entrant.name, error=error, left_out=left_out)
        commands = {name: shlex.join(each.server.command) for name, each in there.items()}
        wrong += _wrong_under_load(there, work=work, left_out=left_out, tell=tell)
        points = []
        for connections in settings.connections:
            course = _Course(work=work, connections=connections, settings=settings, tell=tell)
            points.append(course.run(there, left_out=left_out))
        return Outcome(points=points, commands=commands, left_out=left_out, wrong=wrong)


def _leave_out(name: str, *, error: BenchError, left_out: list[str]) -> None:
    if name == OURS:
        raise error
    left_out.append(str(error))


def _field(
    work: Work, *, peers: Sequence[Peer], cache: Path, folder: Path, tell: Tell
) -> tuple[list[Entrant], list[str]]:
    found, left_out = [], []
    for peer in peers:
        tell(f"environment of {peer.name}")
        try:
            made = peer_environment(peer, work=work, cache=cache)
        except BenchError as error:
            left_out.append(str(error))
        else:
            found += entrants_of(peer, work=work, environment=made, folder=folder)
    return found, left_out


def peer_environment(peer: Peer, *, work: Work, cache: Path) -> Environment:
    """Give the environment of `peer`, with what the model of `work` needs; BenchError if pip fails."""
    return environment(cache / peer.name, requirements=[*peer.requirements, *work.requirements])


def _wrong_under_load(there: dict[str, Running], *, work: Work, left_out: list[str], tell: Tell) -> list[str]:
    """Say who answers wrong under load; who cannot be checked is taken out of `there`."""
    wrong = []
    for name, each in list(there.items()):
        tell(f"{work.name}: checking answers of {name} under load")
        traffic = replace(each.traffic, connections=_CHECKED_CONNECTIONS, seconds=_CHECKED_SECONDS)
        try:
            fault = measure(each.server, traffic=traffic, generator="python").seen.fault
        except BenchError as error:
            _leave_out(name, error=BenchError(f"{name} under load: {error}"), left_out=left_out)
            del there[name]
        else:
            wrong += [f"{work.name}: {name}: {fault}"] if fault else []
    return wrong


@dataclass(frozen=True, kw_only=True)
class _Course:
    """One number of clients, for all entrants."""

    work: Work
    connections: int
    settings: Settings
    tell: Tell

    def run(self, there: dict[str, Running], *, left_out: list[str]) -> Point:
        """Measure all of `there` in turns; who breaks is taken out of it, and said in `left_out`."""
        trials: dict[str, list[Trial]] = {name: [] for name in there}
        all_cpu: dict[str, list[float | None]] = {name: [] for name in there}
        for turn in range(1, self.settings.rounds + 1):
            # In turns: what else the machine does then falls on all alike.
            for name, each in list(there.items()):
                self.tell(f"{self._title}: round {turn} of {self.settings.rounds}, {name}")
                try:
                    trial, cpu = self._measure(each)
                except BenchError as error:
                    _leave_out(name, error=BenchError(f"{self._title}: {name}: {error}"), left_out=left_out)
                    del there[name], trials[name], all_cpu[name]
                else:
                    trials[name].append(trial)
                    all_cpu[name].append(cpu)
        point = self.work.point
        return Point(
            work=self.work.name,
            connections=self.connections,
            limit=point.limit(self.connections) if point else None,
            trials=trials,
            all_cpu=all_cpu,
            ratio=ratio_to_best(trials, ours=OURS, metric=metric_of(self.connections)),
        )

    @property
    def _title(self) -> str:
        return f"{self.work.name}, {self.connections} clients"

    def _measure(self, each: Running) -> tuple[Trial, float | None]:
        traffic = replace(each.traffic, connections=self.connections, seconds=self.settings.seconds)
        before = each.server.cpu()
        trial = measure(each.front, traffic=traffic, generator=self.settings.generator)
        after = each.server.cpu()
        if before is None or after is None or not trial.seen.answers:
            return trial, None
        used = after.server + after.workers - before.server - before.workers
        return trial, used / trial.seen.answers * 1000
