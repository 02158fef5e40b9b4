"""All entrants under the same load, in turns, round by round."""

import contextlib
import shlex
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.harness.environments import Environment, environment
from benchmarks.peers.catalogue import Peer
from benchmarks.peers.entrants import (
    OURS,
    Entrant,
    Running,
    Work,
    WrongAnswerError,
    entrants_of,
    ours,
    running,
)
from benchmarks.peers.loads import (
    ClosedLoop,
    OpenLoop,
    OverloadError,
    Round,
    VoidError,
    long_enough_s,
)
from benchmarks.peers.marks import Mark, Verdict, closed_marks, open_marks, verdict
from uncork_loadtests.servers import BenchError

_CHECK = ClosedLoop(connections=32, seconds=1.0, generator="python")
# What a gateway in Python on a small machine may be asked for beside the generator.
_MOST_RATE = 4000.0
_TRIES = 3

Tell = Callable[[str], None]
"""Called with what is being done now, in a few words."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What the user chose."""

    connections: Sequence[int]
    """Closed loop: numbers of clients; none: no closed loop."""
    rates: Sequence[float]
    """Open loop: percentages of the model's capacity, or of 4000 requests/s if that is less."""
    rounds: int
    seconds: float
    """Of each measurement; more where an open loop needs it to speak of a p99."""
    generator: str
    """Of the closed loop: python or wrk."""


@dataclass(frozen=True, kw_only=True)
class Point:
    """What was found for one model and one load."""

    work: str
    load: str
    connections: int | None
    """Closed loop: the clients; so is `limit`."""
    rate: float | None
    """Open loop: requests per second; so is `goal_s`."""
    limit: float | None
    """Requests per second that the model allows; None if not known."""
    goal_s: float | None
    rounds: Mapping[str, Sequence[Round | None]]
    """By the entrant's name; None for a void round."""
    verdicts: Sequence[Verdict]


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What was found for one model."""

    work: str
    points: Sequence[Point]
    commands: Mapping[str, str]
    """By the entrant's name; the port is chosen anew each time."""
    left_out: Sequence[str]
    """Entrants, and single rounds, that could not be measured, and why."""
    wrong: Sequence[str]
    """Entrants that answered wrong, and how."""
    last_words: Mapping[str, str]
    """By the entrant's name: the last lines written by those that failed or had faults."""


@dataclass(frozen=True, kw_only=True)
class Event:
    """One load, with how its figures are judged."""

    load: ClosedLoop | OpenLoop
    marks: Sequence[Mark]
    limit: float | None = None


def compete(work: Work, *, peers: Sequence[Peer], cache: Path, settings: Settings, tell: Tell) -> Outcome:
    """Start Uncork and every peer with each of its settings, check their answers, measure them in turns.

    A peer that cannot be installed, does not start or breaks is left out; BenchError if it is Uncork.
    """
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        contest = Contest(work=work, settings=settings, tell=tell)
        for entrant in [ours(work), *contest.entrants(peers, cache=cache, folder=folder)]:
            contest.enter(entrant, stack=stack)
        commands = {name: shlex.join(each.server.command) for name, each in contest.there.items()}
        contest.check_under_load()
        points = [contest.run(event) for event in events(work, settings=settings)]
        return Outcome(
            work=work.name,
            points=points,
            commands=commands,
            left_out=contest.left_out,
            wrong=contest.wrong,
            last_words=contest.last_words,
        )


def events(work: Work, *, settings: Settings) -> list[Event]:
    """All loads that the settings ask for; a model of unknown capacity gets no open loop."""
    point = work.point
    found = [
        Event(
            load=ClosedLoop(connections=clients, seconds=settings.seconds, generator=settings.generator),
            marks=closed_marks(point, clients=clients),
            limit=point.limit(clients) if point else None,
        )
        for clients in settings.connections
    ]
    if point is None:
        return found
    for percent in settings.rates:
        rate = min(_MOST_RATE, point.capacity) * percent / 100
        load = OpenLoop(
            rate=rate, goal_s=10 * point.seconds(1), seconds=long_enough_s(settings.seconds, rate=rate)
        )
        found.append(Event(load=load, marks=open_marks(point)))
    return found


def peer_environment(peer: Peer, *, work: Work, cache: Path) -> Environment:
    """Give the environment of `peer`, with what the model of `work` needs; BenchError if pip fails."""
    return environment(cache / peer.name, requirements=[*peer.requirements, *work.requirements])


@dataclass(kw_only=True)
class Contest:
    """The entrants that are there, and what became of the others."""

    work: Work
    settings: Settings
    tell: Tell
    there: dict[str, Running] = field(default_factory=dict)
    left_out: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    last_words: dict[str, str] = field(default_factory=dict)

    def entrants(self, peers: Sequence[Peer], *, cache: Path, folder: Path) -> list[Entrant]:
        """Every setting of the peers that can be installed."""
        found = []
        for peer in peers:
            self.tell(f"environment of {peer.name}")
            try:
                made = peer_environment(peer, work=self.work, cache=cache)
            except BenchError as error:
                self.left_out.append(str(error))
            else:
                found += entrants_of(peer, work=self.work, environment=made, folder=folder)
        return found

    def enter(self, entrant: Entrant, *, stack: contextlib.ExitStack) -> None:
        """Start an entrant, to run until `stack` is unwound, if it starts and answers right."""
        self.tell(f"{self.work.name}: starting {entrant.name}")
        try:
            self.there[entrant.name] = stack.enter_context(running(entrant, work=self.work))
        except WrongAnswerError as error:
            self.wrong.append(f"{self.work.name}: {error}")
        except BenchError as error:
            self._leave_out(entrant.name, error=error)

    def check_under_load(self) -> None:
        """Note who answers wrong under load; who cannot be checked is left out."""
        for name, each in list(self.there.items()):
            self.tell(f"{self.work.name}: checking answers of {name} under load")
            try:
                fault = _CHECK.measure(each, turn=0).fault
            except BenchError as error:
                self._leave_out(name, error=BenchError(f"{name} under load: {error}"))
            else:
                self._note(name, fault=fault)
                self.wrong += [f"{self.work.name}: {name}: {fault}"] if fault else []

    def run(self, event: Event) -> Point:
        """Measure all that are there in turns; who breaks or cannot keep up is left out from then on."""
        load, title = event.load, self._title(event.load)
        rounds: dict[str, list[Round | None]] = {name: [] for name in self.there}
        for turn in range(1, self.settings.rounds + 1):
            # In turns: what else the machine does then falls on all alike.
            for name in list(self.there):
                self.tell(f"{title}: round {turn} of {self.settings.rounds}, {name}")
                try:
                    rounds[name].append(self._measure(name, load=load, turn=turn))
                except BenchError as error:
                    self._leave_out(name, error=BenchError(f"{title}: {name} {error}"))
                    del rounds[name]
        return Point(
            work=self.work.name,
            load=load.title,
            connections=load.connections if isinstance(load, ClosedLoop) else None,
            rate=load.rate if isinstance(load, OpenLoop) else None,
            limit=event.limit,
            goal_s=load.goal_s if isinstance(load, OpenLoop) else None,
            rounds=rounds,
            verdicts=[verdict(mark, rounds, ours=OURS, limit=event.limit) for mark in event.marks],
        )

    def _measure(self, name: str, *, load: ClosedLoop | OpenLoop, turn: int) -> Round | None:
        """One round; a void one is tried again, and None when it stays void.

        Others than Uncork are no longer measured when they cannot keep up.
        """
        for _ in range(_TRIES):
            try:
                found = load.measure(self.there[name], turn=turn)
            except VoidError as error:
                reason = f"void {_TRIES} times: {error}"
            except OverloadError as error:
                if name != OURS:
                    raise
                reason = str(error)
                break
            else:
                self._note(name, fault=found.fault)
                if found.wrong:
                    self.wrong.append(f"{self._title(load)}: {name}: {found.fault}")
                return found
        self.left_out.append(f"{self._title(load)}: round {turn} of {name}: {reason}")
        return None

    def _note(self, name: str, *, fault: str) -> None:
        if fault:
            self.last_words[name] = self.there[name].server.last_words()

    def _leave_out(self, name: str, *, error: BenchError) -> None:
        if name == OURS:
            raise error
        self.left_out.append(str(error))
        if name in self.there:
            self._note(name, fault=str(error))
            del self.there[name]

    def _title(self, load: ClosedLoop | OpenLoop) -> str:
        return f"{self.work.name}, {load.title}"
