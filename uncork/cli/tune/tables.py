"""Results of ``uncork tune``, as text and as JSON."""

import math
import shlex
from collections.abc import Iterator
from dataclasses import fields

from rich.console import RenderableType
from rich.table import Table

from uncork.cli.terminal import NOTHING, as_document, plain_table
from uncork_dispatcher.advice import advise
from uncork_dispatcher.wording import plural
from uncork_loadtests.servers import words
from uncork_loadtests.traffic.plan import per_second
from uncork_loadtests.tuning.lengths import findings
from uncork_loadtests.tuning.search import Proposal
from uncork_loadtests.tuning.tune import GATEWAY_BUSY, Proof, Tuned


def text(tuned: Tuned) -> Iterator[RenderableType]:
    yield _sizes(tuned)
    yield from _line(tuned)
    if tuned.rates:
        yield ""
        yield _rates(tuned)
        yield "highest simulated rates at which 99 % of requests meet the goal, ignoring the gateway's limit"
    proposal = tuned.proposal
    if proposal is None or not proposal.met:
        return
    yield ""
    yield serve_command(tuned.request.target, proposal)
    cap, rate = proposal.mb_max_batch_size, proposal.rate
    yield f"@api(..., mb_max_latency={proposal.mb_max_latency:g}, mb_max_batch_size={cap})"
    yield ""
    yield (
        f"for {per_second(rate)}: {plural(proposal.workers, 'worker')} with a capacity of "
        f"{per_second(proposal.capacity)} in full batches, {proposal.capacity / rate:.1f} times the rate"
    )
    if tuned.proof is not None:
        yield from _proof(tuned.proof, proposal)


def serve_command(target: str, proposal: Proposal) -> str:
    """Return the proposal as a command line."""
    options = {
        "--workers": proposal.workers,
        "--mb-max-latency": f"{proposal.mb_max_latency:g}",
        "--mb-max-batch-size": proposal.mb_max_batch_size,
    }
    return shlex.join(["uncork", "serve", target, *words(options)])


def as_json(tuned: Tuned) -> bytes:
    request, proposal = tuned.request, tuned.proposal
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
        "advice": proposal,
        "met": proposal is not None and proposal.met,
        "command": serve_command(request.target, proposal) if proposal is not None and proposal.met else None,
        "proof": tuned.proof,
        "warnings": [one.clause for one in tuned.warnings],
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
        yield advise("step", rows=rows).clause
    if tuned.lengths is not None:
        yield from (one.clause for one in findings(tuned.lengths, has_cost=False))
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


def _proof(proof: Proof, proposal: Proposal) -> Iterator[RenderableType]:
    share = ""
    if proof.workers < proposal.workers:
        share = ", with one worker and its share of the rate, as this machine has fewer cores than workers"
    yield f"load test: {per_second(proof.rate)} for {proof.seconds:.3g} s{share}"
    if proof.recorded_s > 1.01 * proof.seconds:  # a whole one may end a little earlier
        yield (
            f"the recording takes {proof.recorded_s:.3g} s at this rate; the load test replayed its "
            "beginning, the simulation all of it"
        )
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
