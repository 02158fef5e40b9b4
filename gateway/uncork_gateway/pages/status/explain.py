"""Sentences that describe what an API does, as pure functions of its figures."""

import math

from uncork_dispatcher import Estimate, HoldReason
from uncork_dispatcher.learning.measures import Measure
from uncork_gateway.pages.status.figures import A_FEW, Figures
from uncork_gateway.pages.status.formatting import (
    Names,
    are,
    as_sentence,
    capitalized,
    count,
    exact,
    exact_ms,
    ms,
    number,
    percent,
    plus_minus,
    with_noun,
)
from uncork_gateway.pages.status.phrases import (
    at_full_load,
    cap,
    longest_wait,
    of_requests,
    rate,
    rows,
    time_of_others,
    time_spent,
    unit,
    what_failed,
)
from uncork_gateway.telemetry.recent import ENOUGH_REQUESTS, WINDOW_S

# A balance of fewer rows is not worth mentioning.
_SOME_ROWS = 2
# A smaller part of a batch's time is left out of the sentence.
_NEGLIGIBLE = 0.02


def waits_for(figures: Figures, names: Names) -> str:
    """State what the queue waits for now."""
    stats, work = figures.stats, figures.work
    if not stats.queued_requests:
        return "The queue is empty."
    if not work.workers:
        return as_sentence(figures.not_ready_reason)
    if not work.idle:
        return " ".join(filter(None, [_busy(figures, names), _running(figures), _next_free(figures)]))
    if figures.draining or stats.holding is None:
        return "The queued requests are about to run."
    left_s = max(0.0, stats.holding.seconds)
    most = f" for up to {ms(left_s)} more" if left_s < math.inf else ""
    return _HOLDS[stats.holding.reason].format(most=most, wait=longest_wait(figures, names))


_HOLDS: dict[HoldReason, str] = {
    "balance": "The policy holds the queue{most} to keep batches equally large across workers.",
    "returns": "The policy holds the queue{most} because clients that were just answered usually send again.",
    "goal": "The policy holds the queue{most} to fill the batch while the goal can still be met.",
    "next": "The policy holds the queue{most} in case another request arrives.",
    "window": "The policy holds the queue{most}, as long as {wait} allows.",
    "quarantine": "The queued requests lost their worker. They run again while another serves the rest.",
    "host": "The queued requests lost their worker. They wait{most} for a worker on another host.",
}


def _busy(figures: Figures, names: Names) -> str:
    total = figures.work.workers
    if total == 1:
        return f"{names.one_busy}."
    return f"{names.all_busy.format(all='Both' if total == 2 else f'All {total}')}."


def _running(figures: Figures) -> str:
    """Name the APIs whose batches run; empty if there is only this one."""
    running = sorted({batch.api for batch in figures.work.running})
    if not running or running == [figures.stats.name]:
        return ""
    apis = " and ".join(filter(None, [", ".join(running[:-1]), running[-1]]))
    return f"Running now: {apis}."


def _next_free(figures: Figures) -> str:
    if not figures.work.running:
        return ""
    left_s = figures.next_free_s
    batch = "It" if figures.work.workers == 1 else "The first"
    if left_s >= 0:
        return f"{batch} should finish in about {ms(left_s)}."
    return f"{batch} should have finished {ms(-left_s)} ago."


def sentence(figures: Figures, names: Names) -> str:
    """Describe an API in its window: errors, traffic, where time goes, batch times, padding, limits."""
    parts = [
        what_failed(figures, names),
        _refused(figures),
        _traffic(figures),
        _where_time_goes(figures),
        _batch_time(figures),
        _padding(figures),
        _limit(figures, names),
    ]
    return " ".join(filter(None, parts))


def _refused(figures: Figures) -> str:
    recent = figures.recent
    if recent.refused_share <= A_FEW:
        return ""
    return f"The gateway refused {of_requests(figures, recent.refused)}."


def _traffic(figures: Figures) -> str:
    recent = figures.recent
    if not recent.requests:
        return _unanswered(figures)
    answered = count(recent.requests, "request")
    if recent.requests < ENOUGH_REQUESTS:
        return f"{answered} in the last {_window(figures)}: too few for rates and percentiles."
    if recent.is_few:
        return f"{answered} in the first second: rates and percentiles follow."
    arrived = f"In the last {_window(figures)}, {rate(figures, recent.rate)} arrived"
    return f"{arrived}{_in_batches(figures)}.{_rejected(figures)}"


def _unanswered(figures: Figures) -> str:
    """Describe the traffic when no request was answered."""
    running = sum(batch.requests for batch in figures.work.running if batch.api == figures.stats.name)
    waiting = figures.stats.queued_requests + running
    if not waiting:
        return f"No requests in the last {WINDOW_S:g} s."
    now = f"{count(waiting, 'request')} {are(waiting)} queued or running"
    return f"No request was answered in the last {WINDOW_S:g} s; {now}."


def _in_batches(figures: Figures) -> str:
    recent = figures.recent
    if not recent.batches or not figures.merges:
        return ""
    size = rows(figures, recent.mean_rows)
    if figures.weighs or recent.mean_rows != recent.mean_requests:
        size = f"{size} ({with_noun(number(recent.mean_requests), 'request')})"
    return f", in batches of about {size}"


def _rejected(figures: Figures) -> str:
    recent = figures.recent
    if recent.client_errors <= A_FEW * recent.requests:
        return ""
    share = percent(recent.client_errors / recent.requests)
    return (
        f" {exact(recent.client_errors)} of {count(recent.requests, 'request')} ({share}) got a 4xx status."
    )


def _window(figures: Figures) -> str:
    seconds = figures.recent.seconds
    return f"{seconds:.0f} s" if seconds >= 1.5 else "second"


def _where_time_goes(figures: Figures) -> str:
    recent = figures.recent
    if recent.is_few or recent.requests == recent.failed + recent.refused:
        return ""
    goal = ""
    if figures.goal_s is not None:
        goal = f", {'above' if figures.is_late else 'within'} the goal of {exact_ms(figures.goal_s)}"
    p99 = f"The p99 latency was {ms(recent.p99_s)}{goal}."
    return f"{time_spent(figures)}. {p99}" if recent.counts.ran else p99


def _batch_time(figures: Figures) -> str:
    estimate, known = figures.estimate, figures.stats.known_rows
    if estimate is None or known is None or estimate.seconds(known[1]) <= 0:
        return "Too few batches have succeeded to estimate how long one takes."
    return f"{_line(figures, estimate, known)}.{_balance(figures)}"


def _line(figures: Figures, estimate: Estimate, known: tuple[float, float]) -> str:
    """Describe the estimate without parts that are unknown, or negligible for the sizes seen."""
    scatter = plus_minus(estimate.spread)
    if known[0] == known[1]:
        size, takes = rows(figures, known[0]), ms(estimate.seconds(known[0]))
        return f"A batch of {size} takes about {takes} ({scatter}); no other size has run yet"
    if not figures.slope_is_known:
        typical = figures.recent.mean_rows or known[1]
        size, takes = rows(figures, typical), ms(estimate.seconds(typical))
        return (
            f"A batch of {size} takes about {takes} ({scatter}); too few of other sizes have run to compare"
        )
    longest_s = estimate.seconds(known[1])
    if estimate.slope_s * (known[1] - known[0]) < _NEGLIGIBLE * longest_s:
        return f"A batch takes about {ms(longest_s)} ({scatter}), whatever its size"
    if estimate.intercept_s < _NEGLIGIBLE * longest_s:
        return f"A batch takes about {ms(estimate.slope_s)} per {unit(figures)} ({scatter})"
    each = f"{ms(estimate.slope_s)} per {unit(figures)}"
    return f"A batch takes about {ms(estimate.intercept_s)} plus {each} ({scatter})"


def _balance(figures: Figures) -> str:
    balanced = figures.balanced_rows
    if balanced is None or balanced < _SOME_ROWS:
        return ""
    return f" To sustain this rate, batches need at least {rows(figures, balanced)} on average."


def _padding(figures: Figures) -> str:
    """State whether batches are padded, and from which length on rows take no more time."""
    padding = figures.stats.padding
    if padding is None:
        return ""
    text = _DEPENDS[padding.measure].format(share=percent(padding.share))
    if padding.length_limit == math.inf:
        return text
    length = number(padding.length_limit)
    size = rows(figures, padding.length_limit) if figures.weighs else with_noun(length, "byte")
    return f"{text} Rows of more than {size} take no more time."


_PADDED = "Batches are padded to their longest row; {share} of the work is padding."
_DEPENDS: dict[Measure, str] = {
    "sum": "Batch times depend on the sum of the costs; the model does not pad.",
    "longest": _PADDED,
    "bytes": "Batch times depend on the bytes of the request bodies; the model does not pad.",
    "longest_bytes": f"Batch times depend on the bytes of the request bodies. {_PADDED}",
}


def _limit(figures: Figures, names: Names) -> str:
    if not figures.work.workers:
        return as_sentence(figures.not_ready_reason)
    full = at_full_load(figures, names)
    capacity = f" {capitalized(full)}." if full else ""
    match figures.limited_by:
        case "nothing":
            if figures.recent.is_few or figures.is_late or figures.state != "ok":
                return capacity.strip()
            return f"There is no bottleneck{f': {full}' if full else ''}."
        case "goal" if figures.is_out_of_reach:
            return f"The goal cannot be met: the smallest request alone takes about {ms(figures.needed_s)}."
        case "goal":
            fit = rows(figures, figures.rows_under_load)
            meets = f"behind another batch, one that meets it has at most {fit}"
            return f"The bottleneck is the goal: {meets}.{capacity}"
        case "cap":
            return f"The bottleneck is the batch cap: batches have at most {cap(figures)}.{capacity}"
        case "workers":
            cause = f"The bottleneck is the number of {names.workers}{f': {full}' if full else ''}."
            return f"{cause}{time_of_others(figures, names)}"
