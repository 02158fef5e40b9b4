"""``uncork compare``: the same service and load under several policies, side by side."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from uncork.cli.compare.plot import draw
from uncork.cli.compare.tables import as_json, tables
from uncork.cli.errors import print_error
from uncork.cli.loadtest import traffic_options as options
from uncork.cli.loadtest.measuring import PICTURES, measuring, require, require_picture
from uncork.cli.loadtest.options import (
    NOWHERE,
    header_field,
    payload_of,
    plan_of,
    refuse_contradictions,
    seconds_of,
    serve_arguments,
)
from uncork.cli.terminal import INTERRUPTED, show, telling, write_json
from uncork.cli.usage import given, refusals, require_writable
from uncork.config.errors import WrongUsage
from uncork_dispatcher import make_policy
from uncork_loadtests.compare import Comparison, Contest
from uncork_loadtests.compare import compare as measure

_SECONDS = 5.0


@dataclass(frozen=True, kw_only=True)
class _Files:
    """Where results go, beside the terminal."""

    json: str | None
    plot: Path | None


def compare(
    context: typer.Context,
    service: options.Service,
    policies: Annotated[
        str,
        typer.Option(
            metavar="NAMES",
            help="Policies as for serve, with commas between them; the others are related to the first.",
        ),
    ] = "cork,fixed:5,none",
    arrivals: options.Arrivals = "poisson",
    rate: options.Rate = None,
    clients: options.Clients = None,
    think_ms: options.ThinkMs = 0.0,
    rounds: Annotated[int, typer.Option(min=1, help="Measurements of each policy.")] = 5,
    seconds: Annotated[
        float | None,
        typer.Option(
            help="Length of each measurement.",
            show_default=f"{_SECONDS:g}; a recording without --rate: its length",
        ),
    ] = None,
    warmup_seconds: options.Warmup = 1.0,
    seed: options.Seed = 1,
    goal_ms: Annotated[
        float | None,
        typer.Option(help="Latency goal that answers are judged by.", show_default="that of the api"),
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
    processes: options.Processes = 1,
    max_connections: options.MaxConnections = 1024,
    path: options.Route = None,
    workers: options.Workers = 1,
    mb_max_latency: options.MbMaxLatency = None,
    mb_max_batch_size: Annotated[
        int | None,
        typer.Option(help="Most rows in a batch.", show_default="as each api says, else 1000"),
    ] = None,
    json: options.Json = None,
    plot: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help=f"Draw all rounds; the name ends in {', '.join(PICTURES)}."),
    ] = None,
) -> None:
    """Put the same load on a service under each policy, in turns, and relate what came of it.

    Every policy has a server of its own; only one is loaded at a time. A measurement is void when its
    generator fell behind; it is repeated up to twice, then its round is left out. The exit code is 1 when no
    round is left, an answer was wrong or there was no good one.
    """
    with refusals("compare"):
        require("scipy", wanted_by="compare")
        refuse_contradictions(given(context))
        recorded = rate is None and clients is None
        measured_s = seconds_of(seconds, arrivals=arrivals, recorded=recorded, otherwise=_SECONDS)
        plan = plan_of(
            {
                "payload": payload_of(data, lines, rows, shape, value_range, function, expected),
                "content_type": content_type,
                "headers": tuple(header_field(one) for one in header or []),
                "arrivals": arrivals,
                "rate": rate,
                "clients": clients,
                "think_s": think_ms / 1000,
                "seconds": measured_s,
                "warmup_s": warmup_seconds,
                "seed": seed,
                "processes": processes,
                "max_connections": max_connections,
            },
            url=NOWHERE,
            goal_ms=goal_ms,
        )
        require_picture(plot)
        require_writable({"--json": json, "--plot": plot})
        serve = {
            "--workers": workers,
            "--mb-max-latency": mb_max_latency,
            "--mb-max-batch-size": mb_max_batch_size,
        }
        contest = Contest(
            target=service,
            policies=_policies(policies),
            plan=plan,
            rounds=rounds,
            path=path,
            options=serve_arguments(serve),
        )
    files = _Files(json=json, plot=plot)
    raise typer.Exit(_run(contest, files=files))


def _policies(text: str) -> list[str]:
    names = list(dict.fromkeys(name.strip() for name in text.split(",")))
    try:
        for name in names:
            make_policy(name, limit_rows=1)
    except ValueError as error:
        raise WrongUsage(f"--policies: {error}") from None
    if len(names) < 2:
        raise WrongUsage(f"--policies takes two or more with commas between them, as cork,none; got {text!r}")
    return names


def _run(contest: Contest, *, files: _Files) -> int:
    """Measure, show and write; returns the exit code."""
    with measuring("compare"), telling() as tell:
        comparison = measure(contest, tell=tell)
    code = _show(comparison, files=files)
    return INTERRUPTED if comparison.rounds.interrupted else code


def _show(comparison: Comparison, *, files: _Files) -> int:
    """Files come before the table, which may go to a reader that leaves early."""
    try:
        if files.plot is not None and comparison.results:
            draw(comparison, files.plot)
        if files.json is not None:
            write_json(files.json, as_json(comparison))
    except OSError as error:
        print_error("compare", error)
        return 1
    if files.json != "-" and comparison.results:
        show(tables(comparison))
    for one in comparison.rounds.left_out:
        print_error("compare", f"round {one.number + 1} left out: {one.policy}: {one.reason}")
    for fault in comparison.faults:
        print_error("compare", fault)
    return 1 if comparison.faults else 0
