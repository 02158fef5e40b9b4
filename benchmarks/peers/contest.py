"""All entrants under the same load, in interleaved rounds."""

import contextlib
import shlex
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.harness.environments import environment
from benchmarks.harness.paths import CACHE
from benchmarks.harness.report import OURS
from benchmarks.harness.rounds import Round, Target, Tell, interleave
from benchmarks.peers.catalogue import Peer
from benchmarks.peers.entrants import Entrant, Work, WrongAnswerError, entrants_of, ours, running
from benchmarks.peers.loads import ClosedLoop, OpenLoop, OverloadError, long_enough_s
from benchmarks.peers.marks import COMPILED, Mark, Verdict, closed_marks, open_marks, verdict
from uncork_loadtests.servers import BenchError

_CHECK = ClosedLoop(connections=32, seconds=1.0, generator="python")
# Within reach of a gateway in Python that shares a small machine with the generator.
_MAX_RATE = 4000.0
_TRIES = 3
Event = tuple[ClosedLoop | OpenLoop, Sequence[Mark], float | None]
"""One load, the marks to judge it by, and the requests per second that the model allows, if known."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The user's choices."""

    connections: Sequence[int]
    """Closed loop: numbers of clients; empty: no closed loop."""
    rates: Sequence[float]
    """Open loop: percentages of the model's capacity, or of 4000 requests/s if that is less."""
    rounds: int
    seconds: float
    """Of each measurement; longer if an open loop needs it for a p99."""
    generator: str
    """Of the closed loop: python or wrk."""
    apart: bool = False
    """Whether one peer at a time runs with Uncork."""
    compiled: str = ""
    """The interpreter of an environment with the compiled core, which is measured too; empty: none."""


@dataclass(frozen=True, kw_only=True)
class Point:
    """The result for one model and one load."""

    work: str
    load: ClosedLoop | OpenLoop
    limit: float | None
    """Closed loop: requests per second that the model allows, if known."""
    rounds: Mapping[str, Sequence[Round | None]]
    """By entrant; None for a void round."""
    verdicts: Sequence[Verdict]


def compete(work: Work, *, peers: Sequence[Peer], settings: Settings, tell: Tell) -> "Contest":
    """Start Uncork and every setting of every peer, check their answers, and measure them.

    A peer that cannot be installed, does not start or breaks is left out.

    Raises:
        BenchError: if that happens to Uncork.
    """
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        contest = Contest(work=work, settings=settings, tell=tell)
        own = [ours(work)]
        if settings.compiled:
            own.append(ours(work, name=COMPILED, python=settings.compiled))
        for entrant in [*own, *contest.entrants(peers, folder=folder)]:
            contest.enter(entrant, stack=stack)
        contest.commands = {name: shlex.join(each.server.command) for name, each in contest.present.items()}
        contest.check_under_load()
        contest.points = [
            contest.run(load, marks, limit=limit) for load, marks, limit in events(work, settings=settings)
        ]
        return contest


def events(work: Work, *, settings: Settings) -> list[Event]:
    """Return all loads of the settings; a model of unknown capacity gets no open loop."""
    point = work.point
    found: list[Event] = [
        (
            ClosedLoop(connections=clients, seconds=settings.seconds, generator=settings.generator),
            closed_marks(point, clients=clients, compiled=bool(settings.compiled)),
            point.limit(clients) if point else None,
        )
        for clients in ([1] if work.is_bulk else settings.connections)
    ]
    if point is None:
        return found
    for percent in settings.rates:
        rate = min(_MAX_RATE, point.capacity) * percent / 100
        load = OpenLoop(
            rate=rate, goal_s=10 * point.seconds(1), seconds=long_enough_s(settings.seconds, rate=rate)
        )
        found.append((load, open_marks(point, compiled=bool(settings.compiled)), None))
    return found


@dataclass(kw_only=True)
class Contest:
    """The entrants of one model that are running, the reasons why others are not, and the results."""

    work: Work
    settings: Settings
    tell: Tell
    present: dict[str, Target] = field(default_factory=dict)
    commands: dict[str, str] = field(default_factory=dict)
    """By entrant; the port differs each time."""
    points: list[Point] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    """Entrants and rounds that could not be measured, with the reason."""
    wrong: list[str] = field(default_factory=list)
    """Wrong answers, with their entrant."""
    last_words: dict[str, str] = field(default_factory=dict)
    """Last output of each entrant that failed or had faults."""

    def entrants(self, peers: Sequence[Peer], *, folder: Path) -> list[Entrant]:
        """Return every setting of the peers that can be installed."""
        found = []
        for peer in peers:
            self.tell(f"environment of {peer.name}")
            try:
                requirements = [*peer.requirements, *self.work.requirements]
                made = environment(CACHE / peer.name, requirements=requirements, python=peer.python)
            except BenchError as error:
                self.left_out.append(str(error))
            else:
                found += entrants_of(peer, work=self.work, environment=made, folder=folder)
        return found

    def enter(self, entrant: Entrant, *, stack: contextlib.ExitStack) -> None:
        """Start an entrant that runs until `stack` is closed."""
        self.tell(f"{self.work.name}: starting {entrant.name}")
        try:
            self.present[entrant.name] = stack.enter_context(running(entrant, work=self.work))
        except WrongAnswerError as error:
            self.wrong.append(f"{self.work.name}: {error}")
        except BenchError as error:
            self._leave_out(entrant.name, error=error)

    def check_under_load(self) -> None:
        """Note wrong answers under load; leave out entrants that cannot be checked."""
        for name, each in list(self.present.items()):
            self.tell(f"{self.work.name}: checking answers of {name} under load")
            try:
                fault = _CHECK.measure(each, turn=0).fault
            except BenchError as error:
                self._leave_out(name, error=BenchError(f"{name} under load: {error}"))
            else:
                self._keep_last_words(name, fault=fault)
                self.wrong += [f"{self.work.name}: {name}: {fault}"] if fault else []

    def run(
        self, load: ClosedLoop | OpenLoop, marks: Sequence[Mark] = (), *, limit: float | None = None
    ) -> Point:
        """Measure all present entrants; those that break or cannot keep up leave the contest."""
        title = self._title(load)

        def measure(name: str, turn: int) -> Round | None:
            try:
                return self._measure(name, load=load, turn=turn)
            except BenchError as error:
                self._leave_out(name, error=BenchError(f"{title}: {name} {error}"))
                return None

        rounds = interleave(
            self.present, rounds=self.settings.rounds, measure=measure, tell=self.tell, title=title
        )
        return Point(
            work=self.work.name,
            load=load,
            limit=limit,
            rounds=rounds,
            verdicts=[verdict(mark, rounds, ours=OURS, limit=limit) for mark in marks],
        )

    def _measure(self, name: str, *, load: ClosedLoop | OpenLoop, turn: int) -> Round | None:
        """Measure one round; a void one is repeated, and None if it stays void.

        Raises:
            OverloadError: if an entrant other than Uncork does not keep up.
            BenchError: if the entrant or the generator fails.
        """
        reason = ""
        for _ in range(_TRIES):
            try:
                found = load.measure(self.present[name], turn=turn)
            except OverloadError as error:
                if name != OURS:
                    raise
                reason = str(error)
                break
            if not found.void:
                self._keep_last_words(name, fault=found.fault)
                if found.wrong:
                    self.wrong.append(f"{self._title(load)}: {name}: {found.fault}")
                return found
            reason = f"void {_TRIES} times: {found.void}"
        self.left_out.append(f"{self._title(load)}: round {turn} of {name}: {reason}")
        return None

    def _keep_last_words(self, name: str, *, fault: str) -> None:
        if fault:
            self.last_words[name] = self.present[name].server.last_words()

    def _leave_out(self, name: str, *, error: BenchError) -> None:
        if name == OURS:
            raise error
        self.left_out.append(str(error))
        if name in self.present:
            self._keep_last_words(name, fault=str(error))
            del self.present[name]

    def _title(self, load: ClosedLoop | OpenLoop) -> str:
        return f"{self.work.name}, {load.title}"
