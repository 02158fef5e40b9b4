"""Measure the gateway in pairs of servers under the same traffic, and print tables with ratios.

Exits with 1 if an answer is wrong, not if a ratio is low. Ratios within one run compare; figures of different
machines or runs do not.

    python -m benchmarks.bench --only echo --rounds 5
"""

import contextlib
import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, Literal

import typer
from rich.console import Console

from benchmarks.harness.cli import JsonFile, exit_with, reporting_failures, write_json
from benchmarks.harness.commands import bare_asgi, uncork_serve
from benchmarks.harness.marks import ratio_interval
from benchmarks.harness.paths import EXAMPLES, SERVICES
from benchmarks.harness.report import Origin, origin, origin_lines
from benchmarks.harness.rounds import Round, Target, Tell, ask_alone, interleave, measure, target
from benchmarks.harness.sheets import Sheet, interval_text, median_known, output, show, text
from benchmarks.harness.wrk import choose_generator
from uncork_loadtests.intervals import Interval
from uncork_loadtests.servers import BenchError, Server, serve
from uncork_workers.extras import install_command

_DIGITS = f"{EXAMPLES / 'digits' / 'service.py'}:Digits"
# Above any queueing delay of 256 clients, so that the policy without batches sheds nothing.
_DIGITS_GOAL_MS = 10_000
_DIGITS_ROWS = 200
_LONE_SECONDS = 2.0
_ECHO_BODY = b"[5.1,3.5,1.4,0.2]"
_PACKAGES = ("uvicorn", "httptools", "uvloop", "msgspec", "numpy", "scikit-learn")
Metric = Literal["requests_per_second", "p50"]


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The user's choices."""

    rounds: int
    seconds: float
    """Of each measurement."""
    connections: int
    echo_generator: str
    """python or wrk."""


@dataclass(frozen=True, kw_only=True)
class Pair:
    """Two servers under the same traffic."""

    title: str
    notes: Sequence[str]
    commands: Mapping[str, str]
    """By server."""
    rounds: Mapping[str, Sequence[Round]]
    """By server."""
    metric: Metric
    ratio: Interval | None
    """The metric of the first server by that of the second, round by round."""

    @property
    def faults(self) -> list[str]:
        return [f"{name}: {one.fault}" for name, each in self.rounds.items() for one in each if one.fault]


@dataclass(frozen=True, kw_only=True)
class Report:
    """Everything about a run, as written with --json."""

    origin: Origin
    settings: Settings
    pairs: Sequence[Pair]


def main(
    rounds: Annotated[int, typer.Option(min=1, help="Measurements of each server.")] = 3,
    seconds: Annotated[float, typer.Option(min=0.1, help="Seconds of each measurement.")] = 4.0,
    connections: Annotated[int, typer.Option(min=1, help="Closed-loop clients.")] = 256,
    only: Annotated[Literal["digits", "echo"] | None, typer.Option(help="Measure only this pair.")] = None,
    load: Annotated[
        Literal["auto", "python", "wrk"],
        typer.Option(help="Generator for echo; auto is wrk if it is installed."),
    ] = "auto",
    json_file: JsonFile = None,
) -> None:
    """Compare cork with none on digits, and the gateway with a bare ASGI app on echo."""
    console, progress = output(), Console(stderr=True)
    found: list[Pair] = []
    with reporting_failures("bench", progress=progress):
        settings = Settings(
            rounds=rounds, seconds=seconds, connections=connections, echo_generator=choose_generator(load)
        )
        for name, compare in {"digits": digits, "echo": echo}.items():
            if only in (None, name):
                with progress.status(name) as status:
                    pairs = compare(settings, tell=status.update)
                # Now, so that a failure of the next one does not lose these figures.
                for pair in pairs:
                    lines = [f"$ {command}" for command in pair.commands.values()]
                    show(sheet(pair), console=console, lines=lines)
                found += pairs
        report = Report(
            origin=origin("scripts/bench gateway", packages=_PACKAGES), settings=settings, pairs=found
        )
        for line in origin_lines(report.origin):
            console.print(line, style="dim", markup=False, soft_wrap=True)
        if json_file is not None:
            write_json(report, json_file)
    exit_with([fault for pair in found for fault in pair.faults], progress=progress)


def digits(settings: Settings, *, tell: Tell) -> list[Pair]:
    """Compare policy cork with policy none on the digits example: throughput, and latency with one client."""
    bodies = digit_bodies()
    options = {"--workers": 2, "--mb-max-latency": _DIGITS_GOAL_MS}
    commands = {policy: uncork_serve(_DIGITS, {**options, "--policy": policy}) for policy in ("cork", "none")}
    with _all(commands, tell=tell) as servers:
        tell("digits: requesting every answer alone")
        answers = [ask_alone(server, path="/predict", bodies=bodies) for server in servers]
        if answers[0] != answers[1]:
            raise BenchError("digits: cork and none give different answers to a request alone")
        if len(set(answers[0])) < 2:
            raise BenchError("digits: all answers are equal, so the comparison proves nothing")
        targets = [target(server, path="/predict", bodies=bodies, expected=answers[0]) for server in servers]
        compare = partial(_compare, targets, settings=settings, tell=tell)
        return [
            compare(
                title=f"digits, 2 workers, {settings.connections} closed-loop clients",
                notes=(
                    f"The goal is {_DIGITS_GOAL_MS // 1000} s, so that policy none sheds nothing.",
                    "Every answer under load is compared with the answer to the same body alone "
                    f"({len(bodies)} different bodies).",
                ),
                clients=settings.connections,
            ),
            compare(
                title="digits, 2 workers, one client",
                notes=("The ratio is of median latencies; below 1, the first is better.",),
                clients=1,
                metric="p50",
            ),
        ]


def echo(settings: Settings, *, tell: Tell) -> list[Pair]:
    """Compare an echo service behind the gateway with a bare ASGI callable under uvicorn."""
    service = uncork_serve(f"{SERVICES / 'echo.py'}:Echo", {"--workers": 1})
    with _all({"uncork": service, "bare": bare_asgi("bare:app")}, tell=tell) as servers:
        targets = []
        for server in servers:
            answers = ask_alone(server, path="/echo", bodies=[_ECHO_BODY])
            if json.loads(answers[0]) != json.loads(_ECHO_BODY):
                raise BenchError(f"echo: {server.name} answers with {answers[0][:200]!r}")
            # The same value, but each server writes it in its own way.
            targets.append(target(server, path="/echo", bodies=[_ECHO_BODY], expected=answers))
        generator = settings.echo_generator
        checked = "" if generator == "python" else "not "
        pair = _compare(
            targets,
            settings=settings,
            tell=tell,
            title=f"echo, 1 worker, {settings.connections} closed-loop clients",
            notes=(f"Generator: {generator}; answers under load are {checked}checked.",),
            clients=settings.connections,
            generator=generator,
        )
        return [pair]


@contextlib.contextmanager
def _all(commands: Mapping[str, Sequence[str]], *, tell: Tell) -> Iterator[list[Server]]:
    with contextlib.ExitStack() as stack:
        servers = []
        for name, command in commands.items():
            tell(f"starting {name}")
            servers.append(stack.enter_context(serve(name, command=command)))
        yield servers


def _compare(
    targets: Sequence[Target],
    *,
    settings: Settings,
    tell: Tell,
    title: str,
    notes: Sequence[str],
    clients: int,
    generator: str = "python",
    metric: Metric = "requests_per_second",
) -> Pair:
    seconds = min(settings.seconds, _LONE_SECONDS) if clients == 1 else settings.seconds
    by_name = {
        each.server.name: replace(each, plan=replace(each.plan, clients=clients, seconds=seconds))
        for each in targets
    }
    rounds = interleave(
        by_name,
        rounds=settings.rounds,
        measure=lambda name, number: measure(by_name[name], generator=generator),
        tell=tell,
        title=title,
    )
    first, second = ([getattr(one, metric) for one in each] for each in rounds.values())
    return Pair(
        title=title,
        notes=notes,
        commands={name: shlex.join(each.server.command) for name, each in by_name.items()},
        rounds=rounds,
        metric=metric,
        ratio=ratio_interval(first, by=second),
    )


_ROWS: tuple[tuple[str, str, int], ...] = (
    ("requests/s", "requests_per_second", 0),
    ("p50 latency, s", "p50", 5),
    ("p99 latency, s", "p99", 5),
    ("mean batch, rows", "rows_per_batch", 1),
    ("refused in a round", "refused", 0),
    ("server, cpu s/1000 req", "front_cpu", 4),
    ("workers, cpu s/1000 req", "below_cpu", 4),
    ("load, cpu s/1000 req", "generator_cpu", 4),
)
"""Label, field of Round, digits."""


def sheet(pair: Pair) -> Sheet:
    """Tabulate the medians over the rounds, and their ratios."""
    first, second = pair.rounds
    rows = []
    for label, figure, digits in _ROWS:
        values = [[getattr(one, figure) for one in each] for each in pair.rounds.values()]
        medians = [text(median_known(each), digits=digits) for each in values]
        rows.append([label, *medians, interval_text(ratio_interval(values[0], by=values[1]))])
    about = f"{pair.metric.replace('_', ' ')}, {first} / {second}: {interval_text(pair.ratio)}"
    return Sheet(
        title=pair.title,
        columns=["median over the rounds", first, second, f"{first} / {second} (95 % interval)"],
        rows=rows,
        notes=[about, *pair.notes],
        emphasised=next(label for label, figure, _ in _ROWS if figure == pair.metric),
    )


def digit_bodies() -> list[bytes]:
    """Return requests for the digits example, of one image each.

    Raises:
        BenchError: if scikit-learn is not installed.
    """
    try:
        from sklearn.datasets import load_digits
    except ImportError as error:
        raise BenchError(f"digits requires scikit-learn; run {install_command('examples')}") from error
    rows = load_digits().data[:_DIGITS_ROWS]
    return [json.dumps(row.tolist(), separators=(",", ":")).encode() for row in rows]


if __name__ == "__main__":
    typer.run(main)
