"""Sentences about the queue, traffic, times and limits of an API, as pure functions of its figures."""

from __future__ import annotations

from uncork_dispatcher import Estimate, HoldReason
from uncork_gateway.pages.status.figures import A_FEW, Figures
from uncork_gateway.pages.status.formatting import Names, are, count, ms, plus_minus, were
from uncork_gateway.pages.status.phrases import able, rate, rows, time_of_others, what_failed, workers
from uncork_gateway.telemetry.recent import ENOUGH_REQUESTS, WINDOW_S

# A balance of fewer rows is not worth mentioning.
_SOME_ROWS = 2
# A smaller part of a batch's time is left out of the sentence.
_NEGLIGIBLE = 0.02


def waits_for(figures: Figures, names: Names) -> str:
    """Describe what the queue waits for now."""
    stats, work = figures.stats, figures.work
    if not stats.queued_requests:
        return "nothing is queued"
    if not work.workers:
        return f"{names.free}: {figures.not_ready_reason}"
    if not work.idle:
        return f"{names.free}: {_busy(figures, names)}; {_next_free(figures)}"
    if figures.draining or stats.holding is None:
        return "nothing: the queue is being released"
    longest = f"for at most {ms(max(0.0, stats.holding.seconds))}"
    return _HOLDS[stats.holding.reason].format(time=longest)


_HOLDS: dict[HoldReason, str] = {
    "balance": "the moment that keeps its batches as large as those of the busy workers, {time}",
    "returns": "the next requests of clients that were just answered, {time}",
    "goal": "more requests, until the last moment that meets the goal, {time}",
    "next": "one more request, {time}",
    "window": "the end of its window, {time}",
    "quarantine": "a request that runs alone, because its worker was lost before",
}


def _busy(figures: Figures, names: Names) -> str:
    total, running = figures.work.workers, {batch.api for batch in figures.work.running}
    busy = names.one_busy if total == 1 else names.all_busy.format(n=total)
    others = ", ".join(sorted(running - {figures.stats.name}))
    some = "" if running == {others} else "some "
    return f"{busy}{f', {some}with {others}' if others else ''}"


def _next_free(figures: Figures) -> str:
    left_s = figures.next_free_s
    which = "it" if figures.work.workers == 1 else "the first"
    if left_s >= 0:
        return f"{which} should be done in {ms(left_s)}"
    return f"{which} should have been done {ms(-left_s)} ago"


def sentence(figures: Figures, names: Names) -> str:
    """Describe an API in its window: errors, traffic, where time goes, batch times, limits."""
    failed = what_failed(figures, names)
    parts = [
        f"{failed}." if failed else "",
        _refused(figures),
        _traffic(figures),
        _where_time_goes(figures),
        _batch_time(figures, names),
        _limit(figures, names),
    ]
    return " ".join(filter(None, parts))


def _refused(figures: Figures) -> str:
    recent = figures.recent
    if recent.refused_share <= A_FEW:
        return ""
    return f"{recent.refused} of {count(recent.answered, 'request')} {were(recent.refused)} refused."


def _traffic(figures: Figures) -> str:
    recent = figures.recent
    if not recent.requests:
        running = sum(batch.requests for batch in figures.work.running if batch.api == figures.stats.name)
        waiting = figures.stats.queued_requests + running
        if waiting:
            now = f"{count(waiting, 'request')} {are(waiting)} queued or running"
            return f"No answer in the last {WINDOW_S:g} s: {now}."
        return f"No request in the last {WINDOW_S:g} s."
    if recent.is_few:
        too_few = "too few" if recent.requests < ENOUGH_REQUESTS else "too early"
        return f"{count(recent.requests, 'request')} in the last {_window(figures)}: {too_few} to say more."
    rejected = ""
    if recent.client_errors > A_FEW * recent.requests:
        rejected = f" {recent.client_errors} of {count(recent.requests, 'request')} got a 4xx."
    batches = ""
    if recent.batches and figures.merges:
        requests = f" ({count(recent.mean_requests, 'request')})"
        same = recent.mean_rows == recent.mean_requests and not figures.weighs
        batches = f", in batches of {rows(figures, recent.mean_rows)}{'' if same else requests} on average"
    return f"In the last {_window(figures)}, {rate(figures, recent.rate)} arrived{batches}.{rejected}"


def _window(figures: Figures) -> str:
    seconds = figures.recent.seconds
    return f"{seconds:.0f} s" if seconds >= 1 else "second"


def _where_time_goes(figures: Figures) -> str:
    recent = figures.recent
    if recent.is_few or recent.requests == recent.failed + recent.refused:
        return ""
    goal = "" if figures.goal_s is None else f" (goal {ms(figures.goal_s)})"
    p99 = f"p99 latency was {ms(recent.p99_s)}{goal}."
    if not recent.counts.ran:
        return f"The {p99}"
    return f"A request spent {ms(recent.queue_s)} queued and {ms(recent.run_s)} in its batch; {p99}"


def _batch_time(figures: Figures, names: Names) -> str:
    estimate, known = figures.estimate, figures.stats.known_rows
    if estimate is None or known is None or estimate.seconds(known[1]) <= 0:
        return "Too few batches have succeeded to say how long one takes."
    return f"{_line(figures, estimate, known)}{_balance(figures, names)}."


def _line(figures: Figures, estimate: Estimate, known: tuple[float, float]) -> str:
    """Describe the estimate without parts that are unknown, or negligible for the sizes seen."""
    scatter, unit = plus_minus(estimate.spread), "unit of cost" if figures.weighs else "row"
    if known[0] == known[1]:
        size = rows(figures, known[0])
        return f"A batch of {size} takes {ms(estimate.seconds(known[0]))} ({scatter}); no other size was seen"
    longest_s = estimate.seconds(known[1])
    if estimate.slope_s * (known[1] - known[0]) < _NEGLIGIBLE * longest_s:
        return f"A batch takes {ms(longest_s)} ({scatter}), whatever its size"
    if estimate.intercept_s < _NEGLIGIBLE * longest_s:
        return f"A batch takes {ms(estimate.slope_s)} per {unit} ({scatter})"
    return f"A batch takes {ms(estimate.intercept_s)} plus {ms(estimate.slope_s)} per {unit} ({scatter})"


def _balance(figures: Figures, names: Names) -> str:
    balanced = figures.balanced_rows
    if balanced is None or balanced < _SOME_ROWS:
        return ""
    keep = "keeps" if figures.work.workers == 1 else "keep"
    return f"; with {rows(figures, balanced)} in each, {workers(figures, names)} {keep} up"


def _limit(figures: Figures, names: Names) -> str:
    limit, can = figures.limited_by, able(figures, names)
    if not figures.work.workers:
        return f"Nothing can be answered: {figures.not_ready_reason}."
    so = f", so {can}" if can else ""
    match limit:
        case "nothing":
            if figures.recent.is_few or figures.state != "ok":
                return f"{can}." if can else ""
            return f"Nothing limits it{f': {can}' if can else ''}."
        case "goal" if figures.is_out_of_reach:
            return f"The goal limits it: the smallest request alone takes {ms(figures.needed_s)}."
        case "goal":
            fit = rows(figures, figures.whole_rows)
            return f"The goal limits it: a batch that meets it has at most {fit}{so}."
        case "cap":
            return f"The batch cap limits it: a batch has at most {rows(figures, figures.whole_rows)}{so}."
        case "workers":
            can = can or f"{workers(figures, names)} cannot answer more"
            return f"The {names.workers} limit it: {can}{time_of_others(figures, names)}."
