"""Results of ``uncork tune``, as text and as JSON."""

import math
import shlex
from collections.abc import Iterator
from dataclasses import fields

from rich.console import RenderableType
from rich.table import Table

from uncork.cli.terminal import NOTHING, as_document, plain_table
from uncork_dispatcher.plural import plural
from uncork_loadtests.servers import words
from uncork_loadtests.traffic.plan import per_second
from uncork_loadtests.tuning.advice import Advice
from uncork_loadtests.tuning.lengths import findings
from uncork_loadtests.tuning.tune import GATEWAY_BUSY, Proof, Tuned


def text(tuned: Tuned) -> Iterator[RenderableType]:
    """Yield the parts to print, one below the other."""
    yield _sizes(tuned)
    yield from _line(tuned)
    if tuned.rates:
        yield ""
        yield _rates(tuned)
        yield "highest simulated rates at which 99 % of requests meet the goal, ignoring the gateway's limit"
    advice = tuned.advice
    if advice is None or not advice.met:
        return
    yield ""
    yield serve_command(tuned.request.target, advice)
    yield f"@api(..., mb_max_latency={advice.mb_max_latency:g}, mb_max_batch_size={advice.mb_max_batch_size})"
    yield ""
    yield (
        f"for {per_second(advice.rate)}: {plural(advice.workers, 'worker')} with a capacity of "
        f"{per_second(advice.capacity)} in full batches, {advice.capacity / advice.rate:.1f} times the rate"
    )
    if tuned.proof is not None:
        yield from _proof(tuned.proof, advice)


def serve_command(target: str, advice: Advice) -> str:
    """Return the advice as a command line."""
    options = {
        "--workers": advice.workers,
        "--mb-max-latency": f"{advice.mb_max_latency:g}",
        "--mb-max-batch-size": advice.mb_max_batch_size,
    }
    return shlex.join(["uncork", "serve", target, *words(options)])


def as_json(tuned: Tuned) -> bytes:
    """Encode all figures; unknown ones are null."""
    request, advice = tuned.request, tuned.advice
    figures = {
        **{one.name: getattr(request, one.name) for one in fields(request) if one.name != "plan"},
        "arrivals": request.plan.arrivals,
        "seed": request.plan.seed,
        "measured": tuned.measured,
        "lengths": tuned.lengths,
        "no_lengths": tuned.no_lengths or None,
        "line": tuned.model.line,
        "gateway_rate": tuned.gateway_rate if tuned.gateway_rate < math.inf else None,
        "rates": tuned.rates,
        "advice": advice,
        "met": advice is not None and advice.met,
        "command": serve_command(request.target, advice) if advice is not None and advice.met else None,
        "proof": tuned.proof,
        "warnings": tuned.warnings,
    }
    return as_document(figures)


def _sizes(tuned: Tuned) -> Table:
    table = plain_table("rows", "batch ms", "fitted ms", "ms/row", "rows/s")
    for size in tuned.measured.sizes:
        table.add_row(
            str(size.rows),
            f"{size.median_ms:.2f}",
            f"{tuned.model.line.milliseconds(size.rows):.2f}",
            f"{size.median_ms / size.rows:.3f}",
            f"{1000 * size.rows / max(size.median_ms, 1e-6):.0f}",
        )
    return table


def _line(tuned: Tuned) -> Iterator[str]:
    line = tuned.model.line
    yield (
        f"a batch of n rows takes {line.intercept_ms:.3g} + {line.slope_ms:.3g}n ms; largest deviation: "
        f"{100 * line.worst_deviation:+.0f} % at {plural(line.worst_rows, 'row')}; noise {line.noise_cv:.2f}"
    )
    for rows in line.steps:
        above = plural(rows, "row")
        yield f"above {above} a batch takes much longer; for a compiled model, set allowed_batch_sizes"
    if tuned.lengths is not None:
        yield from findings(tuned.lengths, has_cost=False)
    if tuned.no_lengths:
        yield f"the effect of the bodies' lengths was not measured: {tuned.no_lengths}"
    if tuned.measured.stopped:
        yield f"larger batches were not measured: {tuned.measured.stopped}"
    yield f"overhead of a single request, in addition to its batch: {tuned.model.overhead_ms:.2f} ms"
    if tuned.gateway_rate < math.inf:
        yield f"the gateway itself uses {GATEWAY_BUSY:.0%} of a core at {tuned.gateway_rate:.0f}/s"


def _rates(tuned: Tuned) -> Table:
    table = plain_table("workers", "requests/s", "max rows/batch", "p99 ms")
    for one in tuned.rates:
        table.add_row(
            str(one.workers), f"{one.rate:.0f}", str(one.mb_max_batch_size), _ms(one.predicted.p99_ms)
        )
    return table


def _proof(proof: Proof, advice: Advice) -> Iterator[RenderableType]:
    share = ""
    if proof.workers < advice.workers:
        share = ", with one worker and its share of the rate, as this machine has fewer cores than workers"
    yield f"load test: {per_second(proof.rate)} for {proof.seconds:.3g} s{share}"
    table = plain_table("", "p50 ms", "p99 ms", "in goal %", "rows/batch")
    for name, one in (("predicted", proof.predicted), ("measured", proof.measured)):
        if one is not None:
            rows = NOTHING if one.batch_rows is None else f"{one.batch_rows:.1f}"
            table.add_row(name, _ms(one.p50_ms), _ms(one.p99_ms), f"{100 * one.in_goal:.2f}", rows)
    yield table
    if proof.gateway_cpu_us is not None:
        busy = proof.gateway_cpu_us * proof.rate / 1e6
        yield f"the gateway used {busy:.0%} of a core; its own work is not simulated"


def _ms(value: float | None) -> str:
    return NOTHING if value is None else f"{value:.2f}"
