"""``uncork loadtest``: puts traffic on a service and shows what came of it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from uncork.cli.errors import complain
from uncork.cli.loadtest import traffic_options as options
from uncork.cli.loadtest.options import (
    NOWHERE,
    SECONDS,
    header_field,
    is_url,
    payload_of,
    plan_of,
    refuse_contradictions,
    seconds_of,
    serve_arguments,
    tls_of,
)
from uncork.cli.loadtest.progress import measure
from uncork.cli.loadtest.tables import as_json, heading, tables
from uncork.cli.terminal import INTERRUPTED, as_text, measuring, telling, write_json
from uncork.cli.usage import given, refusals, require_writable
from uncork_dispatcher.plural import plural
from uncork_loadtests.extras import require
from uncork_loadtests.generator.fleet import Outcome
from uncork_loadtests.generator.samples import Summary
from uncork_loadtests.reports.page import write_html
from uncork_loadtests.reports.picture import write_png
from uncork_loadtests.targets import Estimate, aimed_at, api_at, apis, estimate, fitted, our_service
from uncork_loadtests.traffic.plan import Plan


@dataclass(frozen=True, kw_only=True)
class _Files:
    """Where results go, beside the terminal."""

    json: str | None
    report: Path | None
    png: Path | None


@dataclass(frozen=True, kw_only=True)
class _Target:
    """What the traffic goes to, when it is there."""

    plan: Plan
    estimate: Callable[[], Estimate | None]


def loadtest(
    context: typer.Context,
    target: Annotated[
        str,
        typer.Argument(
            metavar="TARGET",
            help="http(s)://host:port/path, or a service as for serve (MODULE:SERVICE or FILE.py:SERVICE), "
            "which is served while the test lasts.",
        ),
    ],
    arrivals: options.Arrivals = "poisson",
    rate: options.Rate = None,
    clients: options.Clients = None,
    think_ms: options.ThinkMs = 0.0,
    seconds: Annotated[
        float | None,
        typer.Option(
            help="Measured time.", show_default=f"{SECONDS:g}; a recording without --rate: its length"
        ),
    ] = None,
    warmup_seconds: options.Warmup = 1.0,
    seed: options.Seed = 1,
    goal_ms: Annotated[
        float | None,
        typer.Option(
            help="Latency goal that answers are judged by.", show_default="that of the service, if it is ours"
        ),
    ] = None,
    data: options.Data = None,
    lines: options.Lines = None,
    rows: options.Rows = 1,
    shape: options.Shape = None,
    value_range: options.Range = None,
    function: options.Function = None,
    expected: options.Expected = None,
    content_type: options.ContentType = "application/json",
    header: options.Header = None,
    ca: options.Ca = None,
    insecure: options.Insecure = False,
    cert: options.Cert = None,
    key: options.Key = None,
    processes: options.Processes = 1,
    max_connections: options.MaxConnections = 1024,
    path: options.Route = None,
    workers: options.Workers = 1,
    policy: Annotated[
        str | None, typer.Option(help="Policy of the service.", show_default="as each api says, else cork")
    ] = None,
    mb_max_latency: options.MbMaxLatency = None,
    json: options.Json = None,
    report: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write a page with pictures; one file of HTML.")
    ] = None,
    png: Annotated[Path | None, typer.Option(metavar="FILE", help="Draw the pictures into a PNG.")] = None,
) -> None:
    """Put traffic on a service, measure from the scheduled times, and show what came of it.

    Open loop: requests come at their times whatever becomes of earlier ones. The run is void, and the exit
    code 1, when the generator fell behind: p99 of its lag above 1 ms and above a tenth of the p99 latency.
    The exit code is 1, too, when an answer was wrong, there was no good one, or most requests failed with
    another status than 503.
    """
    with refusals("loadtest"):
        refuse_contradictions(given(context), target=target)
        # Before anything is started: what is wrong with the options, whatever the target turns out to be.
        plan = plan_of(
            {
                "payload": payload_of(data, lines, rows, shape, value_range, function, expected),
                "content_type": content_type,
                "headers": tuple(header_field(one) for one in header or []),
                "tls": tls_of(ca, insecure, cert, key),
                "arrivals": arrivals,
                "rate": rate,
                "clients": clients,
                "think_s": think_ms / 1000,
                "seconds": seconds_of(seconds, arrivals=arrivals, recorded=rate is None and clients is None),
                "warmup_s": warmup_seconds,
                "seed": seed,
                "processes": processes,
                "max_connections": max_connections,
            },
            url=target if is_url(target) else NOWHERE,
            goal_ms=goal_ms,
        )
        require_writable({"--json": json, "--report": report, "--png": png})
        if report is not None:
            require("plotly.graph_objects", wanted_by="--report")
        if png is not None:
            require("matplotlib.figure", wanted_by="--png")
    serve = serve_arguments({"--policy": policy, "--mb-max-latency": mb_max_latency, "--workers": workers})
    files = _Files(json=json, report=report, png=png)
    raise typer.Exit(_run(target, serve=serve, path=path, plan=plan, files=files))


def _run(target: str, *, serve: list[str], path: str | None, plan: Plan, files: _Files) -> int:
    """Test, show and write; returns the exit code."""
    with measuring("loadtest"), _reached(target, serve=serve, path=path, plan=plan) as there:
        outcome = measure(there.plan, console=Console(stderr=True))
        known = there.estimate()
    code = _show(outcome, known, files=files)
    return INTERRUPTED if outcome.interrupted else code


@contextlib.contextmanager
def _reached(target: str, *, serve: list[str], path: str | None, plan: Plan) -> Iterator[_Target]:
    """The target, started if it is a service."""
    if is_url(target):
        yield _Target(plan=fitted(plan), estimate=lambda: None)
        return
    with contextlib.ExitStack() as stack:
        with telling() as tell:
            tell(f"starting {target}")
            server = stack.enter_context(our_service(target, options=serve))
        api = api_at(path, of=apis(server))
        yield _Target(
            plan=aimed_at(api, plan, server),
            estimate=lambda: None if api.streams else estimate(server, api=api),
        )


def _show(outcome: Outcome, known: Estimate | None, *, files: _Files) -> int:
    """Files come before the table, which may go to a reader that leaves early."""
    if not outcome.measured_s:
        typer.echo("uncork loadtest: it ended before anything was measured", err=True)
        return 1
    summary = outcome.summary()
    text = as_text(tables(outcome, summary, estimate=known))
    try:
        if files.json is not None:
            write_json(files.json, as_json(outcome, summary, estimate=known))
        if files.report is not None:
            write_html(outcome, files.report, estimate=known, title=heading(outcome), text=text)
        if files.png is not None:
            write_png(outcome, files.png, estimate=known, title=heading(outcome))
    except OSError as error:
        complain("loadtest", error)
        return 1
    if files.json != "-":
        typer.echo(text)
    return _judge(outcome, summary)


def _judge(outcome: Outcome, summary: Summary) -> int:
    faults = [f"void: {outcome.void}"] if outcome.void else []
    if summary.wrong:
        faults.append(f"{plural(summary.wrong, 'wrong answer')}, the first: {outcome.first_wrong}")
    if outcome.failure:
        faults.append(outcome.failure)
    for fault in faults:
        complain("loadtest", fault)
    return 1 if faults else 0
