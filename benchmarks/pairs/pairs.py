"""What the bench measures: pairs of servers under the same traffic, in turns, in one run."""

import contextlib
import http.client
import json
import shlex
import statistics
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from benchmarks.harness.generators import Traffic, Trial, measure, wrk_path
from benchmarks.harness.paths import EXAMPLES, SERVICES
from uncork_loadtests.servers import HOST, BenchError, Server, serve

_DIGITS = EXAMPLES / "digits" / "service.py"
# Well above any queueing delay of 256 clients, so that the policy without batches sheds nobody.
_DIGITS_GOAL_MS = 10_000
_DIGITS_ROWS = 200
_LONE_SECONDS = 2.0
_ECHO_BODY = b"[5.1,3.5,1.4,0.2]"

Metric = Literal["requests_per_second", "p50"]
Tell = Callable[[str], None]
"""Called with what is being done now, in a few words."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What the user chose."""

    rounds: int
    seconds: float
    """Of each measurement."""
    connections: int
    echo_generator: str
    """The generator of the echo pair: python or wrk."""


@dataclass(frozen=True, kw_only=True)
class Spread:
    """A ratio taken in every round."""

    median: float
    low: float
    high: float


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Two servers under the same traffic."""

    title: str
    notes: Sequence[str]
    connections: int
    commands: Mapping[str, str]
    """By the server's name."""
    trials: Mapping[str, Sequence[Trial]]
    """By the server's name, one for each round; the last server is the one that is divided by."""
    metric: Metric
    """What the ratio is of."""
    ratio: Spread | None
    """First server by second, round by round; None if the metric is missing or zero."""

    @property
    def faults(self) -> list[str]:
        """Every fault seen, with the server's name."""
        return [
            f"{name}: {trial.seen.fault}"
            for name, trials in self.trials.items()
            for trial in trials
            if trial.seen.fault
        ]


@dataclass(frozen=True, kw_only=True)
class _Contest:
    """What is to be compared: two servers, each with the traffic it gets."""

    title: str
    notes: Sequence[str]
    entries: Sequence[tuple[Server, Traffic]]
    generator: str = "python"
    metric: Metric = "requests_per_second"


def digits(settings: Settings, *, tell: Tell) -> list[Comparison]:
    """Compare policy cork with policy none on the digits example: throughput, lone latency."""
    bodies = digit_bodies()
    service = _uncork(f"{_DIGITS}:Digits", workers=2)
    commands = {
        policy: [*service, "--policy", policy, "--mb-max-latency", str(_DIGITS_GOAL_MS)]
        for policy in ("cork", "none")
    }
    with _both(commands, tell=tell) as servers:
        tell("digits: asking for every answer alone")
        expected = _agreed([ask_alone(server, path="/predict", bodies=bodies) for server in servers])
        crowd = Traffic(
            path="/predict",
            bodies=bodies,
            expected=expected,
            connections=settings.connections,
            seconds=settings.seconds,
        )
        lone = replace(crowd, connections=1, seconds=min(settings.seconds, _LONE_SECONDS))
        contests = (
            _Contest(
                title=f"digits, 2 workers, {settings.connections} closed-loop clients",
                notes=(
                    f"The goal is {_DIGITS_GOAL_MS // 1000} s, so that policy none sheds nobody.",
                    "Every answer under load is compared with the lone answer to the same body "
                    f"({len(bodies)} different ones).",
                ),
                entries=[(server, crowd) for server in servers],
            ),
            _Contest(
                title="digits, 2 workers, a lone client",
                notes=("The ratio is of median latencies: below 1 is better for the first.",),
                entries=[(server, lone) for server in servers],
                metric="p50",
            ),
        )
        return [_compare(contest, rounds=settings.rounds, tell=tell) for contest in contests]


def echo(settings: Settings, *, tell: Tell) -> list[Comparison]:
    """Compare an echo service behind the gateway with a bare ASGI callable under uvicorn."""
    bare = [sys.executable, "-m", "uvicorn", "bare:app", "--app-dir", str(SERVICES)]
    bare += ["--no-access-log", "--loop", "uvloop", "--http", "httptools"]
    bare += ["--log-level", "warning", "--lifespan", "off", "--host", HOST]
    commands = {"uncork": _uncork(f"{SERVICES / 'echo.py'}:Echo", workers=1), "bare": bare}
    with _both(commands, tell=tell) as servers:
        entries = []
        for server in servers:
            answers = ask_alone(server, path="/echo", bodies=[_ECHO_BODY])
            if json.loads(answers[0]) != json.loads(_ECHO_BODY):
                raise BenchError(f"echo: {server.name} answers with {answers[0][:200]!r}")
            traffic = Traffic(
                path="/echo",
                bodies=[_ECHO_BODY],
                expected=answers,  # the same value, but a server may write it differently
                connections=settings.connections,
                seconds=settings.seconds,
            )
            entries.append((server, traffic))
        generator = settings.echo_generator
        checked = "" if generator == "python" else "not "
        contest = _Contest(
            title=f"echo, 1 worker, {settings.connections} closed-loop clients",
            notes=(f"Generator: {generator}; answers under load are {checked}compared.",),
            entries=entries,
            generator=generator,
        )
        return [_compare(contest, rounds=settings.rounds, tell=tell)]


def choose_generator(wish: str) -> str:
    """Turn auto, python or wrk into the generator for echo; BenchError if wrk is not there.

    wrk takes less processor time from the server it shares a small machine with.
    """
    there = wrk_path() is not None
    if wish == "wrk" and not there:
        raise BenchError("the program wrk is not on PATH")
    return "wrk" if there and wish in ("auto", "wrk") else "python"


def spread(first: Sequence[float | None], *, by: Sequence[float | None]) -> Spread | None:
    """Ratio of `first` to `by`, pair by pair; None if any value is missing or zero."""
    ratios = [a / b for a, b in zip(first, by, strict=True) if a and b]
    if not ratios or len(ratios) < len(first):
        return None
    return Spread(median=statistics.median(ratios), low=min(ratios), high=max(ratios))


def ask_alone(
    server: Server, *, path: str, bodies: Sequence[bytes], headers: Mapping[str, str] | None = None
) -> list[bytes]:
    """Answers to `bodies` sent one after the other; BenchError if one is not answered with 200."""
    connection = http.client.HTTPConnection(HOST, server.port, timeout=30.0)
    answers = []
    try:
        for body in bodies:
            connection.request("POST", path, body, {"Content-Type": "application/json", **(headers or {})})
            reply = connection.getresponse()
            answers.append(reply.read())
            if reply.status != 200:
                raise BenchError(
                    f"{server.name} answers {reply.status} to a lone request: {answers[-1][:500]!r}"
                )
    except (OSError, http.client.HTTPException) as error:
        raise BenchError(f"{server.name} does not answer a lone request: {error!r}") from error
    finally:
        connection.close()
    return answers


@contextlib.contextmanager
def _both(commands: Mapping[str, Sequence[str]], *, tell: Tell) -> Iterator[list[Server]]:
    with contextlib.ExitStack() as stack:
        servers = []
        for name, command in commands.items():
            tell(f"starting {name}")
            servers.append(stack.enter_context(serve(name, command=command)))
        yield servers


def _compare(contest: _Contest, *, rounds: int, tell: Tell) -> Comparison:
    trials: dict[str, list[Trial]] = {server.name: [] for server, _ in contest.entries}
    for turn in range(1, rounds + 1):
        # In turns: what else the machine does then falls on both alike.
        for server, traffic in contest.entries:
            tell(f"{contest.title}: round {turn} of {rounds}, {server.name}")
            trial = measure(server, traffic=traffic, generator=contest.generator)
            trials[server.name].append(trial)
    first, second = (
        [getattr(trial.seen, contest.metric) for trial in trials[server.name]]
        for server, _ in contest.entries
    )
    return Comparison(
        title=contest.title,
        notes=contest.notes,
        connections=contest.entries[0][1].connections,
        commands={server.name: shlex.join(server.command) for server, _ in contest.entries},
        trials=trials,
        metric=contest.metric,
        ratio=spread(first, by=second),
    )


def _agreed(answers: Sequence[list[bytes]]) -> list[bytes]:
    if answers[0] != answers[1]:
        raise BenchError("digits: the two policies answer a lone request differently")
    if len(set(answers[0])) < 2:
        raise BenchError("digits: all answers are the same, comparing them proves nothing")
    return answers[0]


def _uncork(service: str, *, workers: int) -> list[str]:
    command = [sys.executable, "-m", "uncork", "serve", service]
    return [*command, "--workers", str(workers), "--host", HOST]


def digit_bodies() -> list[bytes]:
    """Requests for the digits example, of one image each; BenchError if scikit-learn is not installed."""
    try:
        from sklearn.datasets import load_digits
    except ImportError as error:
        raise BenchError("digits needs scikit-learn: pip install 'uncork[examples]'") from error
    rows = load_digits().data[:_DIGITS_ROWS]
    return [json.dumps(row.tolist(), separators=(",", ":")).encode() for row in rows]
