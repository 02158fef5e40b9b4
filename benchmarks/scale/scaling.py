"""How the gateway scales: with workers, with the size of bodies and answers, with connections."""

import contextlib
import json
import resource
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from benchmarks.harness.commands import bare_asgi, uncork_serve
from benchmarks.harness.marks import Bound, State, Values, at_least, at_most, ratios
from benchmarks.harness.paths import SERVICES
from benchmarks.harness.rounds import Round, Target, Tell, ask_alone, interleave, measure, target
from benchmarks.peers.entrants import ours, running, sleep_work
from benchmarks.peers.model_point import ModelPoint
from benchmarks.scale.answer_forms import NPY, V2_BINARY, answer_forms, vectors_service
from uncork_dispatcher.wording import plural
from uncork_loadtests.intervals import Interval, median_interval
from uncork_loadtests.servers import BenchError, Server, serve

TWO_WORKERS = at_least(1.9)
"""Requests per second with two workers, by those with one."""
LARGE_BODIES = at_least(0.5)
"""Bytes per second, by those of a bare server that drops them."""
FLAT = at_most(1.5)
"""The gateway's processor time per request, by that at the start of the range."""
_FLAT_FROM_CONNECTIONS = 16

# Above the delay of any number of clients here, so that nothing is shed.
_GOAL_MS = 60_000.0
_MIDDLE = ModelPoint(intercept_ms=5, slope_ms=0.1)
# Slow enough that many workers do not need more than the gateway can do.
_SLOW = ModelPoint(intercept_ms=100, slope_ms=1)
_CLIENTS_PER_WORKER = 32
_BODY_CLIENTS = 16
_ANSWER_CLIENTS = (1, 16)
_CLIENTS = 256
# Open files of a server process besides its connections.
_OTHER_FILES = 512


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The user's choices."""

    rounds: int
    seconds: float
    """Of each measurement."""
    generator: str
    """python or wrk."""
    connections: Sequence[int]
    workers: Sequence[int]
    body_bytes: Sequence[int]
    answer_bytes: int
    """Size of the array in an answer."""


@dataclass(frozen=True, kw_only=True)
class Step:
    """One server, or one setting of it."""

    name: str
    rounds: Sequence[Round]
    ratio: Interval | None = None
    """To the base; None for the base itself."""
    state: State = "no mark"


@dataclass(frozen=True, kw_only=True)
class Finding:
    """Several steps under comparable load."""

    kind: str
    title: str
    figure: str
    """Name of the figure that is compared."""
    base: str
    """The step that the others are divided by."""
    bound: Bound
    steps: Sequence[Step]
    body_bytes: int | None = None


def two_workers(settings: Settings, *, tell: Tell) -> list[Finding]:
    """Compare two workers with one, under the same load."""
    work = sleep_work(_MIDDLE)
    with contextlib.ExitStack() as stack:
        targets = {}
        for count in (1, 2):
            tell(f"starting {count} workers")
            entrant = ours(work, workers=count)
            targets[plural(count, "worker")] = stack.enter_context(running(entrant, work=work))
        found = _in_rounds(targets, settings=settings, clients=_CLIENTS, tell=tell)
    return [
        Finding(
            kind="two-workers",
            title=f"{work.name}, {_CLIENTS} clients: two workers compared with one",
            figure="requests/s",
            base="1 worker",
            bound=TWO_WORKERS,
            steps=_steps(found, figure="requests_per_second", base="1 worker", bound=TWO_WORKERS),
        )
    ]


def large_bodies(settings: Settings, *, tell: Tell) -> list[Finding]:
    """Compare a service that counts a long string with a bare server that drops the body."""
    commands = {
        "uncork": (uncork_serve(f"{SERVICES / 'length.py'}:Length"), "/readyz"),
        "bare": (bare_asgi("discard:app"), "/"),
    }
    with contextlib.ExitStack() as stack:
        servers = []
        for name, (command, ready) in commands.items():
            tell(f"starting {name}")
            servers.append(stack.enter_context(serve(name, command=command, ready_path=ready)))
        return [_bodies(servers, size, settings=settings, tell=tell) for size in settings.body_bytes]


def _bodies(servers: Sequence[Server], size: int, *, settings: Settings, tell: Tell) -> Finding:
    body = b'"' + b"u" * (size - 2) + b'"'
    targets = {}
    for server in servers:
        answers = ask_alone(server, path="/length", bodies=[body])
        if json.loads(answers[0]) != size - 2:
            raise BenchError(
                f"{server.name} answers {answers[0][:100]!r} to a string of {size - 2} characters"
            )
        targets[server.name] = target(server, path="/length", bodies=[body], expected=answers)
    found = _in_rounds(targets, settings=settings, clients=_BODY_CLIENTS, tell=tell, title=f"{size} bytes")
    return Finding(
        kind="bodies",
        title=f"bodies of {size:,} bytes, {_BODY_CLIENTS} clients: compared with a server that drops them",
        figure="MB/s",
        base="bare",
        bound=LARGE_BODIES,
        steps=_steps(found, figure="requests_per_second", base="bare", bound=LARGE_BODIES),
        body_bytes=size,
    )


def large_answers(settings: Settings, *, tell: Tell) -> list[Finding]:
    """Measure the gateway's processor time per request over the form of one array."""
    tell("starting uncork")
    command = vectors_service(settings.answer_bytes, {"--mb-max-latency": f"{_GOAL_MS:g}"})
    with serve("uncork", command=command) as server:
        targets = answer_forms(server)
        return [
            _curve(
                "answers",
                _in_rounds(targets, settings=settings, clients=clients, tell=tell),
                base=NPY,
                judged=[V2_BINARY],
                title=f"arrays of {settings.answer_bytes:,} bytes, clients: {clients}: "
                "the gateway's processor time by format of the answer",
            )
            for clients in _ANSWER_CLIENTS
        ]


def by_connections(settings: Settings, *, tell: Tell) -> list[Finding]:
    """Measure the gateway's processor time per request over the number of connections, with one worker."""
    allow_open_files(max(settings.connections) + _OTHER_FILES)
    work = sleep_work(_MIDDLE)
    with running(ours(work, goal_ms=_GOAL_MS), work=work) as server:
        found = interleave(
            [f"{count}" for count in settings.connections],
            rounds=settings.rounds,
            measure=lambda name, _: _measure(server, settings=settings, clients=int(name)),
            tell=tell,
            title="connections",
        )
    judged = [count for count in settings.connections if count >= _FLAT_FROM_CONNECTIONS]
    return [
        _curve(
            "connections",
            found,
            base=f"{min(judged or settings.connections)}",
            judged=[f"{count}" for count in judged],
            title=f"{work.name}, 1 worker: the gateway's processor time by number of connections",
        )
    ]


def by_workers(settings: Settings, *, tell: Tell) -> list[Finding]:
    """Measure the gateway's processor time per request over the number of workers, with clients to match."""
    allow_open_files(max(settings.workers) * _CLIENTS_PER_WORKER + _OTHER_FILES)
    work = sleep_work(_SLOW)
    found: dict[str, list[Round]] = {}
    for count in settings.workers:
        # One server at a time: so many idle processes would disturb the measurement.
        tell(f"starting {count} workers")
        with running(ours(work, workers=count, goal_ms=_GOAL_MS), work=work) as server:
            clients = count * _CLIENTS_PER_WORKER
            found |= _in_rounds({f"{count}": server}, settings=settings, clients=clients, tell=tell)
    return [
        _curve(
            "workers",
            found,
            base=f"{min(settings.workers)}",
            judged=[*found],
            title=f"{work.name}, {_CLIENTS_PER_WORKER} clients per worker: "
            "the gateway's processor time by number of workers",
        )
    ]


KINDS: Mapping[str, Callable[..., list[Finding]]] = {
    "two-workers": two_workers,
    "bodies": large_bodies,
    "answers": large_answers,
    "connections": by_connections,
    "workers": by_workers,
}
"""Measurements by name."""


def allow_open_files(count: int) -> None:
    """Let this process and its children open `count` files; raise BenchError if the system forbids it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft >= count or soft == resource.RLIM_INFINITY:
        return
    if hard != resource.RLIM_INFINITY and hard < count:
        raise BenchError(f"{count} open files are needed, {hard} are allowed; raise ulimit -Hn")
    resource.setrlimit(resource.RLIMIT_NOFILE, (count, hard))


def _in_rounds(
    targets: Mapping[str, Target], *, settings: Settings, clients: int, tell: Tell, title: str = ""
) -> dict[str, list[Round]]:
    return interleave(
        targets,
        rounds=settings.rounds,
        measure=lambda name, _: _measure(targets[name], settings=settings, clients=clients),
        tell=tell,
        title=title,
    )


def _measure(each: Target, *, settings: Settings, clients: int) -> Round:
    plan = replace(each.plan, clients=clients, seconds=settings.seconds)
    return measure(replace(each, plan=plan), generator=settings.generator)


def _curve(
    kind: str, found: Mapping[str, Sequence[Round]], *, base: str, judged: Sequence[str], title: str
) -> Finding:
    return Finding(
        kind=kind,
        title=title,
        figure="front cpu",
        base=base,
        bound=FLAT,
        steps=_steps(found, figure="front_cpu", base=base, bound=FLAT, judged=judged),
    )


def _steps(
    found: Mapping[str, Sequence[Round]],
    *,
    figure: str,
    base: str,
    bound: Bound,
    judged: Sequence[str] | None = None,
) -> list[Step]:
    values: dict[str, Values] = {name: [getattr(one, figure) for one in each] for name, each in found.items()}
    steps = []
    for name, each in found.items():
        related = [] if name == base else ratios(values[name], by=values[base])
        marked = name != base and (judged is None or name in judged)
        steps.append(
            Step(
                name=name,
                rounds=each,
                ratio=median_interval(related) if related else None,
                state=bound.state(related) if marked else "no mark",
            )
        )
    return steps
