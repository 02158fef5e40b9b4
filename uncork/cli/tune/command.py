"""``uncork tune``: the workers and batches that a service needs for a latency goal, found and proved."""

from __future__ import annotations

from typing import Annotated

import typer

from uncork.cli.errors import complain
from uncork.cli.loadtest import traffic_options as options
from uncork.cli.loadtest.options import NOWHERE, header_field, payload_of, plan_of, refuse_contradictions
from uncork.cli.terminal import measuring, show, telling, write_json
from uncork.cli.tune.tables import as_json, text
from uncork.cli.usage import given, in_options, refusals, require_writable
from uncork_loadtests.extras import require
from uncork_loadtests.traffic.plan import REPLAY
from uncork_loadtests.tuning.tune import Tuned, TuningRequest
from uncork_loadtests.tuning.tune import tune as find
from uncork_workers.supervision.cores import usable_cores

_OPTIONS = {"goal_ms": "--goal-ms", "rate": "--rate", "seconds": "--seconds"}


def tune(
    context: typer.Context,
    service: options.Service,
    goal_ms: Annotated[
        float, typer.Option(help="99 % of the requests are to have their answer within so many ms.")
    ],
    rate: Annotated[
        float | None,
        typer.Option(
            help="Requests per second that are to be carried, on average.",
            show_default=f"the recorded rate with {REPLAY}, else whatever the workers can carry",
        ),
    ] = None,
    arrivals: options.Arrivals = "poisson",
    max_workers: Annotated[int, typer.Option(min=1, help="Most workers to advise.")] = 4,
    max_batch_size: Annotated[
        int, typer.Option(min=1, help="Most requests in a batch that is measured and advised.")
    ] = 256,
    seconds: Annotated[
        float | None,
        typer.Option(help="Length of the load test that proves.", show_default="1000 requests, 5 to 60"),
    ] = None,
    seed: options.Seed = 1,
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
    path: options.Route = None,
    json: options.Json = None,
) -> None:
    """Find the settings with which a service keeps a latency goal, and prove them with a load test.

    Measures how long batches of the real service take by their size, simulates policy cork with that, and
    loads the service as advised. The exit code is 1 when the goal cannot be kept, or measured latencies are
    more than 30 % from the predicted ones.
    """
    with refusals("tune"):
        require("scipy", wanted_by="tune")
        refuse_contradictions(given(context))
        plan = plan_of(
            {
                "payload": payload_of(data, lines, rows, shape, value_range, function, expected),
                "content_type": content_type,
                "headers": tuple(header_field(one) for one in header or []),
                "arrivals": arrivals,
                "rate": 1.0 if rate is None and not arrivals.startswith(REPLAY) else rate,
                "clients": None,
                "seed": seed,
                "processes": processes,
            },
            url=NOWHERE,
            goal_ms=None,
        )
        require_writable({"--json": json})
        request = _request(
            target=service,
            plan=plan,
            goal_ms=goal_ms,
            rate=plan.average_rate if rate is None and arrivals.startswith(REPLAY) else rate,
            max_workers=max_workers,
            max_batch_size=max_batch_size,
            cores=usable_cores(),
            path=path,
            seconds=seconds,
        )
    raise typer.Exit(_run(request, json=json))


def _request(**values: object) -> TuningRequest:
    try:
        return TuningRequest(**values)  # type: ignore[arg-type]
    except ValueError as error:
        raise in_options(error, _OPTIONS) from None


def _run(request: TuningRequest, *, json: str | None) -> int:
    """Tune, show and write; returns the exit code."""
    with measuring("tune"), telling() as tell:
        tuned = find(request, tell=tell)
    return _show(tuned, json=json)


def _show(tuned: Tuned, *, json: str | None) -> int:
    """The file comes before the text, which may go to a reader that leaves early."""
    try:
        if json is not None:
            write_json(json, as_json(tuned))
    except OSError as error:
        complain("tune", error)
        return 1
    if json != "-":
        show(text(tuned))
    for warning in tuned.warnings:
        complain("tune", warning)
    return 1 if tuned.warnings else 0
