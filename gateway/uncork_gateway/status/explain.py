"""What happens to an api, in words: pure functions of its figures."""

from __future__ import annotations

from uncork_dispatcher import Holding, HoldReason
from uncork_gateway.status.document import Limit
from uncork_gateway.status.figures import Figures
from uncork_gateway.status.recorder import WINDOW_S
from uncork_gateway.status.words import Names, count, ms, number, percent, times

# From this gain on, a larger batch is worth asking for.
_WORTH = 1.2
_SOME_GAIN = 1.1
MOSTLY = 0.5
"""From this share on something is the rule."""

# With less of the workers' time than this taken one by one, the next request finds an idle worker.
_THIN = 0.7
_CLOSED = 0.9
# Rows per second; the rate fades away after the last of them and never gets to 0.
_NOTHING_ARRIVES = 0.01


def rows(figures: Figures, value: float) -> str:
    """Rows, or units of cost."""
    return count(value, "unit of cost", "units of cost") if figures.weighs else count(value, "row")


def rate(figures: Figures, per_second: float) -> str:
    """Rows per second."""
    return f"{number(per_second)} {'units of cost' if figures.weighs else 'rows'}/s"


def workers(figures: Figures, names: Names) -> str:
    """How many there are."""
    return count(figures.work.workers, names.worker, names.workers)


def load(figures: Figures, names: Names) -> str:
    """What arrives beside what can be answered of it."""
    arrive, able = figures.rate, figures.usable_capacity or 0.0
    if arrive > able:
        return (
            f"{rate(figures, arrive)} arrive and {workers(figures, names)} can answer {rate(figures, able)}"
        )
    return (
        f"they come in bursts: {rate(figures, arrive)} arrive on average, and {workers(figures, names)} can "
        f"answer {rate(figures, able)}"
    )


def is_thin(figures: Figures) -> bool:
    """Whether a request is usually done before the next one comes."""
    if not figures.is_estimated or not figures.batches or not figures.work.workers:
        return False
    requests = figures.rate / figures.rows_per_request
    return requests * figures.seconds(figures.rows_per_request) / figures.work.workers < _THIN


def is_closed_loop(figures: Figures) -> bool:
    """Whether nearly all requests come from clients that wait for an answer most of the time."""
    stats = figures.stats
    if stats.returning_share < _CLOSED or not stats.clients:
        return False
    # As many as wait at a time: arrivals by the time that an answer takes (Little's law).
    waiting = figures.rate / figures.rows_per_request * figures.recent.duration.mean
    return waiting >= MOSTLY * stats.clients


def caps_batches(figures: Figures) -> bool:
    """Whether most batches are as large as they may be, and larger ones could do more."""
    return figures.share_of_releases("full") >= MOSTLY and figures.gain_of_cap >= _SOME_GAIN


def limited_by(figures: Figures) -> Limit:
    """What keeps an api from answering more, or sooner."""
    if not figures.work.workers:
        return "workers"
    if figures.is_out_of_reach and figures.batches:
        return "goal"
    if figures.is_overloaded or figures.is_late:
        if figures.gain_of_cap >= _WORTH and not figures.streams:
            return "cap"
        if figures.gain_of_goal >= _WORTH:
            return "goal"
        return "workers"
    return "cap" if caps_batches(figures) else "nothing"


def waits_for(figures: Figures, names: Names) -> str:
    """What its policy waits for now."""
    stats, work = figures.stats, figures.work
    if not stats.queued_requests:
        return "nothing is held"
    if not work.workers:
        return f"{names.free}: {figures.trouble}"
    if not work.idle:
        return f"{_busy(figures, names)}; {_next_free(figures)}"
    if figures.draining or stats.holding is None:
        return "nothing: what is held is released now"
    return _HOLDS[stats.holding.reason].format(time=_for(stats.holding))


_HOLDS: dict[HoldReason, str] = {
    "balance": "the moment that keeps batches even with those of busy workers, {time}",
    "returns": "clients that were answered to come back with their next request, {time}",
    "goal": "more requests, until the last moment that meets the goal, {time}",
    "next": "one more request, {time}",
    "window": "the end of its window, {time}",
    "suspect": "a request that runs alone, because a worker was lost that ran it",
}


def _for(holding: Holding) -> str:
    return f"for {ms(max(0.0, holding.seconds))} at most"


def _busy(figures: Figures, names: Names) -> str:
    number_of, running = figures.work.workers, {batch.api for batch in figures.work.running}
    busy = names.one_busy if number_of == 1 else names.all_busy.format(n=number_of)
    others = ", ".join(sorted(running - {figures.stats.name}))
    some = "" if running == {others} else "some "
    return f"{names.free}: {busy}{f', {some}for {others}' if others else ''}"


def _next_free(figures: Figures) -> str:
    left_s = figures.next_free_s
    which = "it" if figures.work.workers == 1 else "the first"
    if left_s >= 0:
        return f"{which} should be done in {ms(left_s)}"
    return f"{which} should have been done {ms(-left_s)} ago"


def sentence(figures: Figures, names: Names) -> str:
    """What happens now: traffic, batch time, what keeps up, where time goes, what limits."""
    parts = [_traffic(figures, names), _batch_time(figures, names), _where_time_goes(figures, names)]
    return " ".join([*[part for part in parts if part], _limit(figures, names)])


def _traffic(figures: Figures, names: Names) -> str:
    stats = figures.stats
    if not figures.asked and stats.rate_rows < _NOTHING_ARRIVES:
        held = f" {count(stats.queued_requests, 'request')} wait." if stats.queued_requests else ""
        return f"No request has come in the last {WINDOW_S:g} s.{held}"
    arriving = stats.rate_rows >= _NOTHING_ARRIVES
    text = f"{rate(figures, stats.rate_rows)} arrive" if arriving else "Nothing arrives now"
    if figures.batches:
        text += (
            f"; a batch has {rows(figures, figures.mean_rows)} of {count(figures.mean_requests, 'request')} "
            "on average"
        )
    return text + "."


def _batch_time(figures: Figures, names: Names) -> str:
    estimate, known = figures.stats.estimate, figures.stats.known_rows
    if not figures.is_estimated:
        return "No batch has run yet, so nothing is known of how long one takes."
    unit, scatter = "unit of cost" if figures.weighs else "row", percent(estimate.spread)
    if known is not None and known[0] == known[1]:
        seen = (
            f"A batch of {rows(figures, known[0])} takes {ms(figures.seconds(known[0]))}, give or "
            f"take {scatter}"
        )
        return f"{seen}; larger and smaller ones have not been seen."
    text = (
        f"A batch takes {ms(estimate.intercept_s)} and {ms(estimate.slope_s)} more for each {unit}, "
        f"give or take {scatter}"
    )
    balanced = figures.balanced_rows
    if balanced is not None:
        keep = "keeps" if figures.work.workers == 1 else "keep"
        text += f"; with {rows(figures, balanced)} in each, {workers(figures, names)} {keep} up"
    return text + "."


def _where_time_goes(figures: Figures, names: Names) -> str:
    recent = figures.recent
    if not recent.ran:
        return ""
    text = f"A request is held {ms(recent.queue_wait.mean)} and runs {ms(figures.run_s)}"
    if figures.transport_s > 0:
        text += f", with {ms(figures.transport_s)} on the way"
    if recent.duration.count:
        p99 = f"; p99 is {ms(figures.p99_s)}"
        text += p99 if figures.goal_s is None else f"{p99}, the goal {ms(figures.goal_s)}"
    return text + "."


def _limit(figures: Figures, names: Names) -> str:
    limit, capacity = limited_by(figures), figures.capacity
    if not figures.work.workers:
        return f"Nothing can be answered: {figures.trouble}."
    least = "at least " if figures.capacity_is_least else ""
    able = (
        "" if capacity is None else f"{workers(figures, names)} can answer {least}{rate(figures, capacity)}"
    )
    match limit:
        case "nothing":
            return f"Nothing limits it{f': {able}' if able else ''}."
        case "goal" if figures.is_out_of_reach:
            return f"The goal limits it: the smallest request takes {ms(figures.stats.needed_s)} by itself."
        case "goal":
            return (
                f"The goal limits it: only {rows(figures, figures.whole_rows)} fit into a batch that "
                f"meets it, and so {able}."
            )
        case "cap":
            return (
                "The largest batch that is allowed limits it: with "
                f"{rows(figures, figures.whole_rows)}, {able}."
            )
        case "workers":
            others = ""
            if figures.busiest_other is not None and figures.others_share >= 0.1:
                others = f", and {percent(figures.others_share)} of their time goes to other {names.api}s"
            return f"The {names.workers} limit it: {able}{others}."


def compared_with_goal(figures: Figures, names: Names) -> str:
    """The 99th percentile beside the goal."""
    if figures.goal_s is None:
        return f"p99 is {ms(figures.p99_s)}"
    ratio = figures.p99_s / figures.goal_s
    return f"p99 is {ms(figures.p99_s)}, {times(ratio)} the goal ({names.goal} {ms(figures.goal_s)})"
