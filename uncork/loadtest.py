"""``uncork loadtest``: puts traffic on a service and shows what came of it."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Annotated, Any, NoReturn

import typer
from rich.console import Console

from uncork.loadtest_options import (
    SECONDS,
    WrongUsage,
    given,
    header_field,
    is_url,
    payload_of,
    plan_of,
    refuse_contradictions,
    require_writable,
    seconds_of,
)
from uncork.loadtest_progress import measure
from uncork.loadtest_tables import as_json, heading, tables
from uncork_dispatcher.simulator import ARRIVALS
from uncork_loadtests.fleet import LoadTestError, Outcome
from uncork_loadtests.plan import REPLAY
from uncork_loadtests.report_html import write_html
from uncork_loadtests.report_png import write_png
from uncork_loadtests.samples import Summary
from uncork_loadtests.servers import BenchError
from uncork_loadtests.targets import Estimate, apis, estimate, our_service

_INTERRUPTED = 130
# Wide enough that nothing is cut off: neither a terminal nor a file minds a long line.
_WIDTH = 1000


@dataclass(frozen=True, kw_only=True)
class _Files:
    """Where results go, beside the terminal."""

    json: str | None
    report: Path | None
    png: Path | None


@dataclass(frozen=True, kw_only=True)
class _Target:
    """Where the traffic goes, when it is there."""

    url: str
    goal_ms: float | None
    """The goal of the api, if it is ours."""
    estimate: Callable[[], Estimate | None]


def loadtest(
    context: typer.Context,
    target: Annotated[
        str,
        typer.Argument(
            metavar="TARGET",
            help="http://host:port/path, or a service as for serve (MODULE:SERVICE or FILE.py:SERVICE), "
            "which is served while the test lasts.",
        ),
    ],
    arrivals: Annotated[
        str,
        typer.Option(
            metavar="KIND",
            help=f"Open loop: {', '.join(ARRIVALS)}. A recorded file has seconds, one a line; with --rate it "
            "is stretched to that rate.",
        ),
    ] = "poisson",
    rate: Annotated[
        float | None,
        typer.Option(
            help="Open loop: requests per second, on average.",
            show_default=f"the recorded rate with {REPLAY}, else needed",
        ),
    ] = None,
    clients: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Closed loop instead: clients that each wait for their answer.",
            show_default="open loop",
        ),
    ] = None,
    think_ms: Annotated[
        float, typer.Option(min=0, help="Closed loop: pause after an answer, in milliseconds.")
    ] = 0.0,
    seconds: Annotated[
        float | None,
        typer.Option(
            help="Measured time.", show_default=f"{SECONDS:g}; a recording without --rate: its length"
        ),
    ] = None,
    warmup_seconds: Annotated[
        float,
        typer.Option(min=0, help="Discarded time before; an open loop warms up with Poisson arrivals."),
    ] = 1.0,
    seed: Annotated[int, typer.Option(help="Decides the arrivals and random rows.")] = 1,
    goal_ms: Annotated[
        float | None,
        typer.Option(
            help="Latency goal that answers are judged by.", show_default="that of the service, if it is ours"
        ),
    ] = None,
    data: Annotated[
        Path | None, typer.Option(metavar="FILE", help="What to send: this file as the body.")
    ] = None,
    lines: Annotated[
        Path | None, typer.Option(metavar="FILE", help="What to send: each line of this file in turn.")
    ] = None,
    rows: Annotated[
        int, typer.Option(min=1, help="What to send: so many random rows in a request, with --shape.")
    ] = 1,
    shape: Annotated[
        str | None,
        typer.Option(metavar="N,N...", help="What to send: random rows of floats of this shape, as JSON."),
    ] = None,
    function: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="What to send: MODULE:FUNCTION or FILE.py:FUNCTION, of a request's number, gives bytes, or "
            "bytes and the right answer.",
        ),
    ] = None,
    expected: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="The right answer to --data; to --lines, one on each line."),
    ] = None,
    content_type: Annotated[str, typer.Option(help="Content-Type of requests.")] = "application/json",
    header: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME:VALUE", help="A header field of every request; may be given again."),
    ] = None,
    processes: Annotated[
        int, typer.Option(min=1, help="Generator processes; each needs a core when the rate is high.")
    ] = 1,
    max_connections: Annotated[
        int, typer.Option(min=1, help="Open loop: most connections; beyond, requests wait for one.")
    ] = 1024,
    path: Annotated[
        str | None,
        typer.Option(help="A service: path to post to.", show_default="the route of its first api"),
    ] = None,
    workers: Annotated[int, typer.Option(min=1, help="A service: worker processes.")] = 1,
    policy: Annotated[
        str | None, typer.Option(help="A service: its policy.", show_default="as each api says, else cork")
    ] = None,
    mb_max_latency: Annotated[
        float | None,
        typer.Option(
            help="A service: its latency goal in milliseconds.", show_default="as each api says, else 300"
        ),
    ] = None,
    json: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Write all figures as JSON; - prints them instead of the table."),
    ] = None,
    report: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write a page with pictures; one file of HTML.")
    ] = None,
    png: Annotated[Path | None, typer.Option(metavar="FILE", help="Draw the pictures into a PNG.")] = None,
) -> None:
    """Put traffic on a service, measure from the scheduled times, and show what came of it.

    Open loop: requests come at their times whatever becomes of earlier ones. The run is void, and the exit
    code 1, when the generator fell behind: p99 of its lag above 1 ms and above a tenth of the p99 latency.
    The exit code is 1, too, when an answer was wrong or there was no good one.
    """
    try:
        refuse_contradictions(given(context), is_url=is_url(target))
        plan = {
            "payload": payload_of(data, lines, rows, shape, function, expected, seed=seed),
            "content_type": content_type,
            "headers": tuple(header_field(one) for one in header or []),
            "arrivals": arrivals,
            "rate": rate,
            "clients": clients,
            "think_s": think_ms / 1000,
            "seconds": seconds_of(seconds, arrivals=arrivals, recorded=rate is None and clients is None),
            "warmup_s": warmup_seconds,
            "seed": seed,
            "processes": processes,
            "max_connections": max_connections,
        }
        # Before anything is started: what is wrong with the options, whatever the target turns out to be.
        plan_of(plan, url=target if is_url(target) else "http://service/", goal_ms=goal_ms)
        files = _Files(json=json, report=report, png=png)
        require_writable(json, report, png)
    except WrongUsage as error:
        typer.echo(f"uncork loadtest: {error}", err=True)
        raise typer.Exit(2) from None
    options = {"--policy": policy, "--mb-max-latency": mb_max_latency, "--workers": workers}
    serve = [text for name, value in options.items() if value is not None for text in (name, str(value))]
    raise typer.Exit(_run(target, serve=serve, path=path, plan=plan, goal_ms=goal_ms, files=files))


def _run(
    target: str,
    *,
    serve: list[str],
    path: str | None,
    plan: dict[str, Any],
    goal_ms: float | None,
    files: _Files,
) -> int:
    """Test, show and write; returns the exit code."""
    # So that what was started is ended also when we are told to stop.
    signal.signal(signal.SIGTERM, _stop)
    console = Console(stderr=True)
    try:
        with _reached(target, serve=serve, path=path, console=console) as there:
            goal = there.goal_ms if goal_ms is None else goal_ms
            outcome = measure(plan_of(plan, url=there.url, goal_ms=goal), console=console)
            known = there.estimate()
    except (LoadTestError, BenchError, WrongUsage) as error:
        typer.echo(f"uncork loadtest: {error}", err=True)
        return 2 if isinstance(error, WrongUsage) else 1
    except KeyboardInterrupt:
        return _INTERRUPTED
    code = _show(outcome, known, files=files)
    return _INTERRUPTED if outcome.interrupted else code


@contextlib.contextmanager
def _reached(target: str, *, serve: list[str], path: str | None, console: Console) -> Iterator[_Target]:
    """The target, started if it is a service."""
    if is_url(target):
        yield _Target(url=target, goal_ms=None, estimate=lambda: None)
        return
    with contextlib.ExitStack() as stack:
        with console.status(f"starting {target}") if console.is_terminal else contextlib.nullcontext():
            server = stack.enter_context(our_service(target, options=serve))
        offered = apis(server)
        api = next((one for one in offered if path in (None, one.route)), None)
        if api is None:
            routes = ", ".join(one.route for one in offered)
            raise WrongUsage(f"--path {path}: {target} has {routes}")
        yield _Target(
            url=server.url(api.route),
            goal_ms=api.goal_ms,
            estimate=lambda: estimate(server, api=api, of=offered),
        )


def _show(outcome: Outcome, known: Estimate | None, *, files: _Files) -> int:
    """Files come before the table, which may go to a reader that leaves early."""
    if not outcome.measured_s:
        typer.echo("uncork loadtest: it ended before anything was measured", err=True)
        return 1
    summary = outcome.summary()
    text = _as_text(outcome, summary, known)
    try:
        if files.json == "-":
            typer.echo(as_json(outcome, summary, estimate=known))
        elif files.json is not None:
            Path(files.json).write_bytes(as_json(outcome, summary, estimate=known) + b"\n")
        if files.report is not None:
            write_html(outcome, files.report, estimate=known, title=heading(outcome), text=text)
        if files.png is not None:
            write_png(outcome, files.png, estimate=known, title=heading(outcome))
    except OSError as error:
        typer.echo(f"uncork loadtest: {error}", err=True)
        return 1
    if files.json != "-":
        typer.echo(text)
    return _judge(outcome, summary)


def _as_text(outcome: Outcome, summary: Summary, known: Estimate | None) -> str:
    # Bodies and names of files may look like markup.
    console = Console(width=_WIDTH, markup=False, emoji=False, highlight=False)
    with console.capture() as captured:
        for part in tables(outcome, summary, estimate=known):
            console.print(part)
    return "\n".join(line.rstrip() for line in captured.get().splitlines())


def _judge(outcome: Outcome, summary: Summary) -> int:
    faults = [f"void: {outcome.void}"] if outcome.void else []
    if summary.wrong:
        faults.append(f"{summary.wrong} wrong answers, the first: {outcome.first_wrong}")
    if not summary.good:
        faults.append("there was no good answer")
    for fault in faults:
        typer.echo(f"uncork loadtest: {fault}", err=True)
    return 1 if faults else 0


def _stop(number: int, frame: FrameType | None) -> NoReturn:
    raise SystemExit(128 + number)
