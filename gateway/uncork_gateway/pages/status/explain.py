"""Describes an API in sentences: its state, its bottleneck, and why. Pure functions of its figures."""

import math

from uncork_dispatcher import HoldReason
from uncork_dispatcher.wording import are, as_sentence, exact, exact_ms, ms, number, percent, plural
from uncork_gateway.errors import RefusalReason
from uncork_gateway.pages.status.advise import unit
from uncork_gateway.pages.status.document import Limit
from uncork_gateway.pages.status.figures import A_FEW, MANY_REQUESTS, MOSTLY, Figures
from uncork_gateway.pages.status.names import Names
from uncork_gateway.telemetry.recent import ENOUGH_REQUESTS, WINDOW_S


def sentence(figures: Figures, names: Names) -> str:
    """Return how requests fared in the window, and the API's bottleneck."""
    recent = figures.recent
    # Few failures and few refusals may together be too many.
    few = 0.0 if figures.state != "ok" else A_FEW
    parts = [
        f"{_of(recent.failed, recent.answered)} failed." if recent.error_share > few else "",
        f"The gateway refused {_of(recent.refused, recent.answered)}." if recent.refused_share > few else "",
        f"{_of(recent.client_errors, recent.requests)} got a 4xx status."
        if recent.client_errors > A_FEW * recent.requests
        else "",
        f"{_of(recent.coalesced, recent.requests)} got the response to an identical request."
        if recent.coalesced > A_FEW * recent.requests
        else "",
        _too_few(figures),
        f"The p99 latency was {ms(recent.p99_s)}, above the goal of {exact_ms(figures.goal_s)}."
        if figures.goal_s is not None and figures.is_late
        else "",
        _limit(figures, names),
    ]
    return " ".join(filter(None, parts))


def _of(number_of: int, requests: int) -> str:
    return f"{exact(number_of)} of {plural(exact(requests), 'request')} ({percent(number_of / requests)})"


def _too_few(figures: Figures) -> str:
    """Return a sentence if there are too few requests for rates and percentiles, else an empty text."""
    recent = figures.recent
    if not recent.requests:
        return f"No request was answered in the last {WINDOW_S:g} s."
    if recent.requests < ENOUGH_REQUESTS:
        window = f"last {recent.seconds:.0f} s" if recent.seconds >= 1.5 else "last second"
        return f"{plural(recent.requests, 'request')} in the {window}: too few for rates and percentiles."
    return "Rates and percentiles follow after the first second." if recent.is_few else ""


def _limit(figures: Figures, names: Names) -> str:
    if not figures.work.workers:
        return as_sentence(figures.not_ready_reason) if figures.not_ready_reason else ""
    is_limited = figures.limited_by != "nothing"
    if not is_limited and (figures.recent.is_few or figures.is_late or figures.state != "ok"):
        return ""
    if figures.limited_by == "goal" and figures.is_out_of_reach:
        return f"The goal cannot be met: the smallest batch takes about {ms(figures.needed_s)}."
    limit = _LIMITS[figures.limited_by].format(parts=names.parts)
    if not is_limited and figures.is_busy_below_capacity:
        busy = percent(figures.utilization)
        limit = f"The {names.parts} are busy {busy} of the time, in batches that can grow"
    if figures.recent.is_few or figures.capacity is None:
        return f"{limit}."
    arrived, capacity = _rows(figures, figures.recent.rate), _rows(figures, figures.capacity)
    workers = plural(exact(figures.work.workers), names.part, names.parts)
    about = "at least" if figures.capacity_is_least else "about"
    others = ""
    if is_limited and figures.is_shared:
        others = f", but other {names.apis} take {percent(figures.others_share)} of the time"
    return f"{limit}: {arrived}/s arrived, and {workers} can answer {about} {capacity}/s{others}."


_LIMITS: dict[Limit, str] = {
    "nothing": "There is no bottleneck",
    "workers": "The bottleneck is the number of {parts}",
    "goal": "The bottleneck is the goal",
    "cap": "The bottleneck is the batch limit",
}


def _rows(figures: Figures, value: float) -> str:
    return plural(number(value), unit(figures), "units of cost" if figures.weighs else "")


def waits_for(figures: Figures, names: Names) -> str:
    """Return a sentence on what the queue waits for now."""
    stats, work = figures.stats, figures.work
    if not stats.queued_requests:
        return "The queue is empty."
    if not work.workers:
        return as_sentence(figures.not_ready_reason or "a worker is starting")
    if not work.idle:
        parts = plural(exact(work.workers), names.part, names.parts)
        return f"{parts} {are(work.workers)} busy{_next_free(figures)}."
    if figures.draining or stats.holding is None:
        return "The queued requests are about to run."
    left_s = max(0.0, stats.holding.seconds)
    most = f" for up to {ms(left_s)} more" if left_s < math.inf else ""
    return _HOLDS[stats.holding.reason].format(
        most=most, policy=_window(figures, names), part=names.part, apis=names.apis
    )


def _next_free(figures: Figures) -> str:
    if not figures.work.running:
        return ""
    left_s = figures.next_free_s
    if left_s >= 0:
        return f"; the first should finish in about {ms(left_s)}"
    return f"; the first should have finished {ms(-left_s)} ago"


def _window(figures: Figures, names: Names) -> str:
    """Return the setting that limits how long requests may be held."""
    rules = figures.stats.rules
    if names.window is not None and rules.make_policy().longest_hold_s == math.inf:
        return names.window
    return " or ".join(filter(None, [f"policy {rules.policy}", names.window]))


_HOLDS: dict[HoldReason, str] = {
    "balance": "The policy holds the queue{most} to keep batches equally large across workers.",
    "returns": "The policy holds the queue{most} because clients that were just answered usually send again.",
    "goal": "The policy holds the queue{most} to fill the batch while the goal can still be met.",
    "next": "The policy holds the queue{most} in case another request arrives.",
    "window": "The policy holds the queue{most}, as long as {policy} allows.",
    "quarantine": "The queued requests lost their worker. They run again while another serves the rest.",
    "host": "The queued requests lost their worker. They wait{most} for a worker on another host.",
    "neighbor": "The queued requests leave the last idle {part} to {apis} with shorter goals{most}.",
    "class": "The queued bulk waits{most} for room that the goal of the first class leaves.",
}


def why_this_size(figures: Figures, names: Names) -> str:
    """Return a sentence with the mean batch size and, if known, the reason for it."""
    recent = figures.recent
    if not recent.batches:
        return f"No batch ran in the last {WINDOW_S:g} s."
    if recent.is_few:
        return "Too few requests to explain the batch size."
    cause = _cause_of_size(figures, names)
    return f"The mean batch has {_rows(figures, recent.mean_rows)}{f': {cause}' if cause else ''}."


def _cause_of_size(figures: Figures, names: Names) -> str:
    """Return the reason for the mean batch size as a clause; empty if it is unknown."""
    recent, rules = figures.recent, figures.stats.rules
    if figures.streams:
        return "requests with streamed responses run alone"
    if not figures.merges:
        is_capped = rules.max_batch_rows == 1
        return f"{names.cap} is 1" if is_capped else f"policy {rules.policy} runs each request alone"
    fits = figures.stats.fits
    if fits < figures.cap_less_padding and recent.mean_rows > MOSTLY * fits:
        parts = f"the memory of a {names.part}"
        return f"batches have at most {_rows(figures, fits)}, because more do not fit into {parts}"
    if recent.share_of_releases("full") >= MOSTLY:
        return f"most batches are full{' of bytes' if figures.is_full_of_bytes else ''}"
    if figures.estimate is None:
        return ""
    if figures.is_thin and recent.mean_requests < MANY_REQUESTS:
        gap, alone = ms(recent.gap_s), ms(figures.alone_s(recent.rows_per_request))
        return f"requests arrive {gap} apart on average, and one alone takes {alone}"
    goal_rows = figures.rows_within(figures.goal_s)
    if goal_rows < figures.cap_less_padding and recent.mean_rows > MOSTLY * goal_rows:
        return f"a batch that meets the goal has at most {_rows(figures, figures.whole_rows)}"
    waiting = figures.requests_at_a_time
    if waiting >= 1 and recent.mean_requests >= MOSTLY * waiting / max(1, figures.work.workers):
        return f"the gateway has about {plural(number(waiting), 'request')} at a time, queued or running"
    return "that is what arrives while other batches run"


def why_refused(figures: Figures, names: Names) -> str | None:
    """Return why requests got 503, or 504 at their client's deadline; None if none did."""
    recent = figures.recent
    if not recent.refused:
        return None
    refused = _of(recent.refused, recent.answered)
    missed = "their client's deadline" if figures.goal_s is None else "the goal or their client's deadline"
    parts = [
        f"{percent(many / recent.refused)} with "
        f"{_REFUSALS[reason].format(none_ready=names.none_ready, missed=missed)}"
        for reason, many in recent.counts.sheds.most_common()
    ]
    if len(parts) == 1:
        return f"The gateway refused {refused}{parts[0].removeprefix('100 %')}."
    return f"The gateway refused {refused}: {'; '.join(parts)}."


_REFUSALS: dict[RefusalReason, str] = {
    "deadline": "503 (deadline), because they would have missed {missed}",
    "client_deadline": "504 (client_deadline), because the time in X-Request-Timeout-Ms passed",
    "queue_full": "503 (queue_full), because the queue was full",
    "too_many_groups": "503 (too_many_groups), because requests of 1,000 other groups were queued",
    "displaced": "503 (displaced), because requests of the first class needed their place",
    "no_worker": "503 (no_worker), because {none_ready}",
    "no_room": "503 (no_room), because too many large request bodies were arriving or being relayed at once",
    "api_removed": "503 (api_removed), because the API was removed, or a reload changed it",
    "draining": "503 (draining), because the server is shutting down",
}
