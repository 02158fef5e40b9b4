"""Results of ``uncork loadtest``, as tables and as JSON."""

from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import msgspec
from rich.console import RenderableType
from rich.table import Table

from uncork.cli.terminal import NOTHING, as_document, percent, plain_table
from uncork_dispatcher.wording import plural
from uncork_loadtests.generator.fleet import Outcome
from uncork_loadtests.generator.samples import BEYOND, PERCENTILES, Spread, Summary, status_name
from uncork_loadtests.targets import Estimate, Padding
from uncork_loadtests.traffic.plan import REPLAY, Plan, per_second


def tables(outcome: Outcome, summary: Summary, *, estimate: Estimate | None) -> Iterator[RenderableType]:
    yield f"POST {outcome.plan.url}"
    yield heading(outcome)
    if outcome.plan.payload.random is not None:
        yield f"each request: {outcome.plan.payload.random}"
    yield ""
    yield _counts(outcome, summary)
    yield ""
    yield _times(summary)
    if (long := summary.long_bodies) is not None:
        yield (
            f"long bodies: the longest tenth, from {plural(long.from_bytes, 'byte')}; all bodies have "
            f"{long.shortest_bytes} to {plural(long.longest_bytes, 'byte')}"
        )
    needed = ", ".join(f"p{p:g} {round(BEYOND * 100 / (100 - p))}" for p in PERCENTILES)
    yield f"latency of successful responses, from the scheduled time; samples needed per percentile: {needed}"
    if estimate is not None:
        line = f"{estimate.intercept_ms:.3g} + {estimate.slope_ms:.3g}n ms"
        size = "of n rows" if estimate.counts == "rows" else "with a total cost of n"
        yield f"the gateway estimates {line} for a batch {size}"
        yield from _padding(estimate.padding)


def _padding(padding: Padding | None) -> Iterator[str]:
    """Describe how lengths affect batch times, as far as the gateway knows."""
    if padding is None:
        return
    if padding.measure.startswith("longest"):
        yield f"batches are padded to their longest row; {padding.share:.0%} of the work is padding"
    else:
        yield "batch times follow the sum of the rows' lengths; batches are not padded"


def heading(outcome: Outcome) -> str:
    """Return the traffic of a run in a line."""
    plan = outcome.plan
    parts = [traffic(plan), f"{outcome.measured_s:.3g} s measured after {plan.warmup_s:g} s of warm-up"]
    parts += [f"seed {plan.seed}", plural(plan.processes, "generator")]
    return ", ".join(parts)


def traffic(plan: Plan) -> str:
    """Describe a plan in a few words."""
    if plan.clients is not None:
        think = f", think time {plan.think_s * 1000:g} ms" if plan.think_s else ""
        return f"closed loop of {plural(plan.clients, 'client')}{think}"
    kind, _, file = plan.arrivals.partition(":")
    arrivals = f"replay of {Path(file).name}" if f"{kind}:" == REPLAY else f"{plan.arrivals} arrivals"
    return f"{arrivals}, {per_second(plan.average_rate)} on average"


def as_json(outcome: Outcome, summary: Summary, *, estimate: Estimate | None) -> bytes:
    figures: dict[str, Any] = {
        "plan": plan_figures(outcome.plan),
        "void": outcome.void or None,
        "interrupted": outcome.interrupted,
        "measured_s": outcome.measured_s,
        "summary": {**msgspec.to_builtins(summary, str_keys=True), "good": summary.good},
        "first_wrong": outcome.first_wrong or None,
        "first_errors": outcome.first_errors,
        "connections": outcome.connections,
        "generator_cpu_s": outcome.cpu_s,
        "estimate": estimate,
    }
    return as_document(figures)


def plan_figures(plan: Plan) -> dict[str, Any]:
    """Return a plan for JSON: how many bodies it has, and which headers; their values may be keys."""
    payload = plan.payload
    return {
        **{one.name: getattr(plan, one.name) for one in fields(plan) if one.name != "payload"},
        "headers": [name for name, _ in plan.headers],
        "bodies": len(payload.bodies),
        "random": payload.random,
        "function": payload.function,
    }


def _counts(outcome: Outcome, summary: Summary) -> Table:
    table = _grid()
    table.add_row("offered", f"{summary.offered_per_s:.1f}/s", plural(summary.requests, "request"))
    table.add_row(
        "answered", f"{summary.answered_per_s:.1f}/s", f"{plural(summary.good, 'successful response')} (2xx)"
    )
    if summary.in_goal is not None and outcome.plan.goal_s is not None:
        goal = f"of all requests within {outcome.plan.goal_s * 1000:g} ms"
        if summary.long_bodies is not None and summary.long_bodies.in_goal is not None:
            goal += f"; {percent(summary.long_bodies.in_goal)} % of those with long bodies"
        table.add_row("in goal", f"{percent(summary.in_goal)} %", goal)
    for status, count in sorted(summary.statuses.items(), reverse=True):
        if not 200 <= status < 300:
            share = f"{percent(count / summary.requests)} %"
            said = outcome.first_errors.get(status)
            table.add_row(status_name(status), str(count), share + (f"; first: {said}" if said else ""))
    if summary.wrong:
        table.add_row("wrong responses", str(summary.wrong), outcome.first_wrong)
    if summary.batch_rows_by_batch is not None:
        by_answer = f"on average; {summary.batch_rows_by_answer:.1f} in the batch of the average request"
        table.add_row("rows/batch", f"{summary.batch_rows_by_batch:.1f}", by_answer)
    if summary.chunks_per_s is not None:
        by_answer = f"{summary.chunks_by_answer:.1f} per streamed response"
        table.add_row("chunks", f"{summary.chunks_per_s:.1f}/s", by_answer)
    cpu = " + ".join(f"{100 * one / outcome.measured_s:.0f}" for one in outcome.cpu_s)
    table.add_row("generator", f"{cpu} %", "of a core")
    waited = f"{plural(summary.waited_for_connection, 'request')} waited for a free one"
    table.add_row("connections", str(outcome.connections), f"at peak; {waited}")
    return table


def _grid() -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True, justify="right")
    table.add_column(no_wrap=True)
    return table


def _times(summary: Summary) -> Table:
    names = [f"{p:g}" for p in PERCENTILES]
    table = plain_table("milliseconds", "samples", "mean", *(f"p{name}" for name in names), "max")
    rows: dict[str, Spread | None] = {
        "latency": summary.latency,
        "  long bodies": None if summary.long_bodies is None else summary.long_bodies.latency,
        "  first chunk": summary.first_chunk,
        "  chunk to chunk": summary.chunk_gap,
        "  queued": summary.held,
        "  batch": summary.batch,
        "  rest": summary.rest,
        "generator lag": summary.lag,
    }
    for name, spread in rows.items():
        if spread is None:
            if name == "latency":
                table.add_row(name, "0", *[NOTHING] * (len(names) + 2))
            continue
        values = [spread.mean_ms, *(spread.percentiles_ms[one] for one in names), spread.max_ms]
        table.add_row(name, str(spread.count), *map(milliseconds, values))
    return table


def milliseconds(value: float | None) -> str:
    if value is None:
        return NOTHING
    return f"{value:.2f}" if value < 100 else f"{value:.0f}"
