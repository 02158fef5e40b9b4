"""How the gateway scales: with workers, with the size of bodies and of answers, with connections."""

import contextlib
import json
import resource
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from benchmarks.harness.batch_counts import batches
from benchmarks.harness.generators import Traffic, Trial, measure
from benchmarks.harness.paths import SERVICES
from benchmarks.pairs.pairs import ask_alone
from benchmarks.peers.entrants import Running, ours, running, sleep_work
from benchmarks.peers.judge import Values, ratios
from benchmarks.peers.marks import FLAT, FLAT_FROM_CONNECTIONS, LARGE_BODIES, TWO_WORKERS, Bound, State
from benchmarks.peers.model_point import ModelPoint
from benchmarks.scale.answer_forms import NPY, V2_BINARY, answer_forms, vectors_service
from uncork_dispatcher.plural import plural
from uncork_loadtests.intervals import Interval, median_interval
from uncork_loadtests.servers import HOST, BenchError, Server, serve

# Above the delay of any number of clients here, so that nobody is shed.
_GOAL_MS = 60_000.0
_MIDDLE = ModelPoint(intercept_ms=5, slope_ms=0.1)
# Slow enough that many workers do not ask for more than the gateway can do.
_SLOW = ModelPoint(intercept_ms=100, slope_ms=1)
_CLIENTS_PER_WORKER = 32
_BODY_CLIENTS = 16
_ANSWER_CLIENTS = (1, 16)
_CROWD = 256
# Beside the connections: open files of a process that serves them.
_OTHER_FILES = 512

Tell = Callable[[str], None]
"""Called with what is being done now, in a few words."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What the user chose."""

    rounds: int
    seconds: float
    """Of each measurement."""
    generator: str
    """python or wrk."""
    connections: Sequence[int]
    workers: Sequence[int]
    body_bytes: Sequence[int]
    answer_bytes: int
    """Of the array in an answer."""


@dataclass(frozen=True, kw_only=True)
class Step:
    """One server, or one setting of it."""

    name: str
    trials: Sequence[Trial]
    rows_per_batch: Sequence[float | None] = ()
    """In every round, where it was asked for."""
    ratio: Interval | None = None
    """To the step that all are related to; None for that one."""
    state: State = "no mark"


@dataclass(frozen=True, kw_only=True)
class Finding:
    """Several steps under comparable load."""

    kind: str
    title: str
    figure: str
    """What the ratio is of."""
    base: str
    """The step that is divided by."""
    bound: Bound
    steps: Sequence[Step]
    body_bytes: int | None = None


@dataclass(frozen=True, kw_only=True)
class _Measured:
    """The trials of a step, while they are made."""

    trials: list[Trial] = field(default_factory=list)
    rows: list[float | None] = field(default_factory=list)


def two_workers(settings: Settings, *, tell: Tell) -> list[Finding]:
    """Compare two workers with one, under the same crowd."""
    work = sleep_work(_MIDDLE)
    with contextlib.ExitStack() as stack:
        there = {}
        for count in (1, 2):
            tell(f"starting {count} workers")
            name = plural(count, "worker")
            there[name] = stack.enter_context(running(ours(work, workers=count), work=work))
        found = _in_turns(there, settings=settings, connections=_CROWD, tell=tell)
    return [
        Finding(
            kind="two-workers",
            title=f"{work.name}, {_CROWD} clients: two workers beside one",
            figure="requests/s",
            base="1 worker",
            bound=TWO_WORKERS,
            steps=_steps(found, figure=_rates(found), base="1 worker", bound=TWO_WORKERS),
        )
    ]


def large_bodies(settings: Settings, *, tell: Tell) -> list[Finding]:
    """Compare a service that counts a long string with a bare server that drops the body."""
    bare = [sys.executable, "-m", "uvicorn", "discard:app", "--app-dir", str(SERVICES)]
    bare += ["--no-access-log", "--loop", "uvloop", "--http", "httptools"]
    bare += ["--log-level", "warning", "--lifespan", "off", "--host", HOST]
    service = [sys.executable, "-m", "uncork", "serve", f"{SERVICES / 'length.py'}:Length", "--host", HOST]
    with contextlib.ExitStack() as stack:
        servers = []
        for name, command in (("uncork", service), ("bare", bare)):
            tell(f"starting {name}")
            ready = "/readyz" if name == "uncork" else "/"
            servers.append(stack.enter_context(serve(name, command=command, ready_path=ready)))
        return [_bodies(servers, size, settings=settings, tell=tell) for size in settings.body_bytes]


def large_answers(settings: Settings, *, tell: Tell) -> list[Finding]:
    """Processor time of the gateway per request over the form in which clients get one array."""
    tell("starting uncork")
    command = [*vectors_service(settings.answer_bytes), "--mb-max-latency", f"{_GOAL_MS:g}"]
    with serve("uncork", command=command) as server:
        there = answer_forms(server)
        return [
            _curve(
                "answers",
                _in_turns(there, settings=settings, connections=clients, tell=tell),
                base=NPY,
                judged=[V2_BINARY],
                title=f"arrays of {settings.answer_bytes:,} bytes, clients: {clients}: "
                "the gateway's processor time over the form of the answer",
            )
            for clients in _ANSWER_CLIENTS
        ]


def by_connections(settings: Settings, *, tell: Tell) -> list[Finding]:
    """Processor time of the gateway per request over the number of connections, one worker."""
    allow_open_files(max(settings.connections) + _OTHER_FILES)
    work = sleep_work(_MIDDLE)
    found: dict[str, _Measured] = {f"{count}": _Measured() for count in settings.connections}
    with running(ours(work, goal_ms=_GOAL_MS), work=work) as server:
        for turn in range(1, settings.rounds + 1):
            for count in settings.connections:
                tell(f"round {turn} of {settings.rounds}: {count} connections")
                _measure(server, into=found[f"{count}"], connections=count, settings=settings)
    judged = [count for count in settings.connections if count >= FLAT_FROM_CONNECTIONS]
    return [
        _curve(
            "connections",
            found,
            base=f"{min(judged or settings.connections)}",
            judged=[f"{count}" for count in judged],
            title=f"{work.name}, 1 worker: the gateway's processor time over connections",
        )
    ]


def by_workers(settings: Settings, *, tell: Tell) -> list[Finding]:
    """Processor time of the gateway per request over the number of workers, with as many clients for each."""
    allow_open_files(max(settings.workers) * _CLIENTS_PER_WORKER + _OTHER_FILES)
    work = sleep_work(_SLOW)
    found: dict[str, _Measured] = {f"{count}": _Measured() for count in settings.workers}
    for count in settings.workers:
        # One after the other: that many processes at once would be another measurement.
        tell(f"starting {count} workers")
        with running(ours(work, workers=count, goal_ms=_GOAL_MS), work=work) as server:
            for turn in range(1, settings.rounds + 1):
                tell(f"{count} workers: round {turn} of {settings.rounds}")
                clients = count * _CLIENTS_PER_WORKER
                _measure(server, into=found[f"{count}"], connections=clients, settings=settings)
    return [
        _curve(
            "workers",
            found,
            base=f"{min(settings.workers)}",
            judged=[*found],
            title=f"{work.name}, {_CLIENTS_PER_WORKER} clients for each worker: "
            "the gateway's processor time over workers",
        )
    ]


KINDS: Mapping[str, Callable[..., list[Finding]]] = {
    "two-workers": two_workers,
    "bodies": large_bodies,
    "answers": large_answers,
    "connections": by_connections,
    "workers": by_workers,
}
"""What can be measured."""


def allow_open_files(count: int) -> None:
    """Let this process and those it starts open so many files; BenchError if the system does not allow it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft >= count or soft == resource.RLIM_INFINITY:
        return
    if hard != resource.RLIM_INFINITY and hard < count:
        raise BenchError(f"{count} open files are needed, {hard} are allowed: see ulimit -Hn")
    resource.setrlimit(resource.RLIMIT_NOFILE, (count, hard))


def _in_turns(
    there: Mapping[str, Running], *, settings: Settings, connections: int, tell: Tell
) -> dict[str, _Measured]:
    found = {name: _Measured() for name in there}
    for turn in range(1, settings.rounds + 1):
        # In turns: what else the machine does then falls on all alike.
        for name, each in there.items():
            tell(f"round {turn} of {settings.rounds}: {name}")
            _measure(each, into=found[name], connections=connections, settings=settings)
    return found


def _bodies(servers: Sequence[Server], size: int, *, settings: Settings, tell: Tell) -> Finding:
    body = b'"' + b"u" * (size - 2) + b'"'
    there = {}
    for server in servers:
        answers = ask_alone(server, path="/length", bodies=[body])
        if json.loads(answers[0]) != size - 2:
            raise BenchError(
                f"{server.name} answers {answers[0][:100]!r} to a string of {size - 2} characters"
            )
        traffic = Traffic(
            path="/length",
            bodies=[body],
            expected=answers,
            connections=_BODY_CLIENTS,
            seconds=settings.seconds,
        )
        there[server.name] = Running(server=server, front=server, traffic=traffic)
    tell(f"bodies of {size} bytes")
    found = _in_turns(there, settings=settings, connections=_BODY_CLIENTS, tell=tell)
    return Finding(
        kind="bodies",
        title=f"bodies of {size:,} bytes, {_BODY_CLIENTS} clients: beside a bare server that drops them",
        figure="MB/s",
        base="bare",
        bound=LARGE_BODIES,
        steps=_steps(found, figure=_rates(found), base="bare", bound=LARGE_BODIES),
        body_bytes=size,
    )


def _measure(each: Running, *, into: _Measured, connections: int, settings: Settings) -> None:
    traffic = replace(each.traffic, connections=connections, seconds=settings.seconds)
    before = batches(each.server)
    into.trials.append(measure(each.front, traffic=traffic, generator=settings.generator))
    after = batches(each.server)
    count = after[0] - before[0] if before and after else 0
    into.rows.append((after[1] - before[1]) / count if before and after and count else None)


def _rates(found: Mapping[str, _Measured]) -> dict[str, Values]:
    return {name: [trial.seen.requests_per_second for trial in each.trials] for name, each in found.items()}


def _curve(
    kind: str, found: Mapping[str, _Measured], *, base: str, judged: Sequence[str], title: str
) -> Finding:
    costs = {name: [trial.server_cpu for trial in each.trials] for name, each in found.items()}
    return Finding(
        kind=kind,
        title=title,
        figure="front cpu",
        base=base,
        bound=FLAT,
        steps=_steps(found, figure=costs, base=base, bound=FLAT, judged=judged),
    )


def _steps(
    found: Mapping[str, _Measured],
    *,
    figure: Mapping[str, Values],
    base: str,
    bound: Bound,
    judged: Sequence[str] | None = None,
) -> list[Step]:
    steps = []
    for name, each in found.items():
        related = [] if name == base else ratios(figure[name], by=figure[base])
        marked = name != base and (judged is None or name in judged)
        steps.append(
            Step(
                name=name,
                trials=each.trials,
                rows_per_batch=each.rows,
                ratio=median_interval(related) if related else None,
                state=bound.state(related) if marked else "no mark",
            )
        )
    return steps
