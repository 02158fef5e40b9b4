"""Advice, as pure functions of an API's figures. Each kind has a stable code."""

import math
from collections.abc import Callable

from uncork_gateway.pages.status.document import Advice
from uncork_gateway.pages.status.figures import A_FEW, MANY_REQUESTS, MOSTLY, Figures
from uncork_gateway.pages.status.formatting import Names, count, ms, number, percent, times
from uncork_gateway.pages.status.phrases import (
    compared_with_goal,
    load,
    rows,
    thin_traffic,
    too_much,
    waiting_clients,
    what_failed,
)

# Below this gain batching is hardly worthwhile.
_WORTH = 1.2
_NOISY = 0.5
# A full batch below this share of the row cap is full of bytes.
_NOT_FULL = 0.9
_ENOUGH_BATCHES = 20
# Below this mean, most batches are a single request.
_HARDLY_ANY_MERGED = 1.5


def advise(figures: Figures, names: Names) -> list[Advice]:
    """Return all advice, the most urgent first; after too few requests, only what needs no statistics."""
    return [
        Advice(code=code, text=text)
        for code, make_text in ADVICE.items()
        if code in _NEEDS_NO_STATISTICS or not figures.recent.is_few
        if (text := make_text(figures, names)) is not None
    ]


def _no_worker(figures: Figures, names: Names) -> str | None:
    return None if figures.work.workers else figures.not_ready_reason


def _errors(figures: Figures, names: Names) -> str | None:
    failed = what_failed(figures, names)
    if failed is None:
        return None
    errors, failure = figures.recent.counts.errors, figures.failure
    remedies = []
    if errors[500] and failure is not None:
        remedies.append(f"Fix the handler: the log has the traceback under error id {failure.error_id}")
    if errors[504]:
        remedies.append("Find out why batches take so long, or raise their timeout")
    return ". ".join([failed, *(remedies or [f"Look into {names.log}"])])


def _goal_out_of_reach(figures: Figures, names: Names) -> str | None:
    if not figures.is_out_of_reach or figures.goal_s is None:
        return None
    smallest = rows(figures, figures.stats.smallest_rows)
    return (
        f"a request of {smallest} takes {ms(figures.needed_s)} by itself, longer than {names.goal} "
        f"({ms(figures.goal_s)}): raise the goal, or make the model faster"
    )


def _add_workers(figures: Figures, names: Names) -> str | None:
    if not figures.work.workers or figures.capacity is None or not figures.is_overloaded:
        return None
    if figures.recent.refused_for_load > A_FEW:
        refused = percent(figures.recent.refused_share)
        why = f"{refused} of the requests were refused, because {too_much(figures, names)}"
    elif figures.is_late:
        why = f"{compared_with_goal(figures, names)}: {load(figures, names)}"
    elif figures.waits_for_workers:
        why = f"{_time_spent(figures)}: {load(figures, names)}"
    else:
        why = f"there is no room for bursts: {load(figures, names)}"
    more = count(figures.missing_workers, names.worker, names.workers)
    return f"{why}; add {more} ({names.add})"


def _time_spent(figures: Figures) -> str:
    recent = figures.recent
    return f"requests spent {ms(recent.queue_s)} queued and {ms(recent.run_s)} in their batches"


def _raise_cap(figures: Figures, names: Names) -> str | None:
    if figures.stats.limit_rows < figures.stats.rules.max_batch_rows:
        return None  # the policy has a limit of its own
    reached = figures.caps_batches and not _is_full_of_bytes(figures)
    if not reached and figures.limited_by != "cap":
        return None
    most = min(2 * figures.cap, max(figures.best_of(math.inf, figures.goal_s), figures.cap + 1))
    why = f"batches of at most {rows(figures, figures.cap)} are too small for this rate"
    if reached:
        share = percent(figures.recent.share_of_releases("full"))
        why = f"{share} of the batches reach the cap of {rows(figures, figures.cap)}"
    return (
        f"{why}: raise {names.cap}, for example to {number(math.floor(most))}; twice the cap would answer "
        f"{times(figures.gain_of_cap)} as much"
    )


def _raise_batch_bytes(figures: Figures, names: Names) -> str | None:
    if names.cap_bytes is None or not _is_full_of_bytes(figures):
        return None
    return (
        f"{percent(figures.recent.share_of_releases('full'))} of the batches are full with "
        f"{rows(figures, figures.recent.mean_rows)} of {number(figures.cap)}, because of their bytes: raise "
        f"{names.cap_bytes} ({figures.stats.rules.max_batch_bytes})"
    )


def _is_full_of_bytes(figures: Figures) -> bool:
    recent = figures.recent
    full = recent.share_of_releases("full") >= MOSTLY
    return full and recent.mean_rows + recent.rows_per_request < _NOT_FULL * figures.cap


def _raise_goal(figures: Figures, names: Names) -> str | None:
    if figures.limited_by != "goal" or figures.is_out_of_reach or figures.goal_s is None:
        return None
    return (
        f"a batch that meets {names.goal} ({ms(figures.goal_s)}) has at most "
        f"{rows(figures, figures.whole_rows)}: raise it if your clients can wait; twice the goal would "
        f"answer {times(figures.gain_of_goal)} as much"
    )


def _raise_queue(figures: Figures, names: Names) -> str | None:
    capacity = figures.capacity
    refused = figures.recent.counts.sheds["queue_full"]
    if not refused or capacity is None or figures.recent.rate > capacity:
        return None
    return (
        f"the queue was full for {count(refused, 'request')}, though the workers have time on average: raise "
        f"--max-queue-rows ({figures.stats.rules.max_queue_rows}) or --max-queue-bytes for such bursts"
    )


def _client_deadline(figures: Figures, names: Names) -> str | None:
    passed, recent = figures.recent.counts.sheds["client_deadline"], figures.recent
    if passed <= A_FEW * recent.answered:
        return None
    took = "" if recent.is_few else f", while p50 latency was {ms(recent.counts.duration.quantile(0.5))}"
    return (
        f"the time in X-Request-Timeout-Ms passed for {count(passed, 'request')}{took}: have clients allow "
        "more time"
    )


def _shared_workers(figures: Figures, names: Names) -> str | None:
    recent, other = figures.recent, figures.busiest_other
    if other is None or figures.others_share < MOSTLY or recent.queue_s <= recent.run_s:
        return None
    return (
        f"{_time_spent(figures)}: other {names.api}s take {percent(figures.others_share)} of the time, most "
        f"of it {other}: give {other} a server of its own, or add {names.workers} ({names.add})"
    )


def _policy_none(figures: Figures, names: Names) -> str | None:
    if figures.streams or figures.stats.rules.policy != "none" or figures.stats.rules.max_batch_rows == 1:
        return None
    return "policy none runs each request by itself: take policy cork, so that requests share batches"


def _fixed_window(figures: Figures, names: Names) -> str | None:
    policy, recent = figures.stats.rules.policy, figures.recent
    if not policy.startswith("fixed") or not recent.batches or recent.queue_s <= recent.run_s:
        return None
    if recent.mean_requests >= _HARDLY_ANY_MERGED or figures.is_overloaded:
        return None
    return (
        f"requests spent {ms(recent.queue_s)} queued under policy {policy}, and a batch has "
        f"{count(recent.mean_requests, 'request')}: take policy cork, which holds only when that pays off"
    )


def _closed_loop(figures: Figures, names: Names) -> str | None:
    if not figures.is_closed_loop or figures.is_overloaded or not figures.recent.batches:
        return None
    most = figures.stats.clients * figures.recent.rows_per_request
    if most >= MOSTLY * figures.best_rows or not figures.merges:
        return None
    return (
        f"{waiting_clients(figures)}, so a batch has at most {count(figures.stats.clients, 'request')}: for "
        "larger ones, send more at once"
    )


def _thin_traffic(figures: Figures, names: Names) -> str | None:
    recent = figures.recent
    if recent.mean_requests >= MANY_REQUESTS or figures.is_closed_loop or not figures.is_thin:
        return None
    if not figures.merges or figures.is_out_of_reach:
        return None
    return f"traffic is thin: {thin_traffic(figures)}"


def _slope_dominated(figures: Figures, names: Names) -> str | None:
    known, recent = figures.stats.known_rows, figures.recent
    if known is None or known[1] < 2 * known[0] or recent.batches < _ENOUGH_BATCHES or not figures.merges:
        return None
    gain = figures.gain_of_batches
    if gain >= _WORTH or figures.best_rows < 2 * recent.rows_per_request:
        return None
    unit = "unit of cost" if figures.weighs else "row"
    return (
        f"each {unit} costs almost as much as the first, and batching gains at most {times(gain)}: check "
        "whether the handler loops over rows"
    )


def _noisy(figures: Figures, names: Names) -> str | None:
    estimate = figures.estimate
    if estimate is None or estimate.spread < _NOISY or figures.recent.batches < _ENOUGH_BATCHES:
        return None
    return (
        f"batch times scatter by {percent(estimate.spread)} around the estimate, which costs goals much "
        "room: look for other work on this machine, or for rows that take unequal time"
    )


ADVICE: dict[str, Callable[[Figures, Names], str | None]] = {
    "no_worker": _no_worker,
    "errors": _errors,
    "goal_out_of_reach": _goal_out_of_reach,
    "raise_cap": _raise_cap,
    "raise_batch_bytes": _raise_batch_bytes,
    "raise_goal": _raise_goal,
    "policy_none": _policy_none,
    "add_workers": _add_workers,
    "raise_queue": _raise_queue,
    "shared_workers": _shared_workers,
    "client_deadline": _client_deadline,
    "fixed_window": _fixed_window,
    "slope_dominated": _slope_dominated,
    "noisy": _noisy,
    "closed_loop": _closed_loop,
    "thin_traffic": _thin_traffic,
}
"""By code, the most urgent first."""

_NEEDS_NO_STATISTICS = {"no_worker", "errors", "goal_out_of_reach", "policy_none", "client_deadline"}
