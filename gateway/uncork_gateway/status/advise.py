"""What to do about it: pure functions of an api's figures. Each advice has a code that never changes."""

from __future__ import annotations

import math
from collections.abc import Callable

from uncork_gateway.status.document import Advice
from uncork_gateway.status.explain import (
    MOSTLY,
    caps_batches,
    compared_with_goal,
    is_closed_loop,
    is_thin,
    limited_by,
    load,
    rows,
)
from uncork_gateway.status.figures import Figures
from uncork_gateway.status.words import Names, count, ms, number, percent, times

# Fewer answers than this share, or batches than these, are chance.
_A_FEW = 0.01
_ENOUGH_BATCHES = 20
# From this gain on, a larger batch is worth asking for; below the other, batches are hardly worth it.
_WORTH = 1.2
_NOISY = 0.5
# A batch that is this much smaller than it may be was not full of rows.
_NOT_FULL = 0.9


def advise(figures: Figures, names: Names) -> list[Advice]:
    """All there is to advise, the most urgent first."""
    told = [(code, say(figures, names)) for code, say in _ADVICE.items()]
    return [Advice(code=code, text=text) for code, text in told if text is not None]


def _no_worker(figures: Figures, names: Names) -> str | None:
    return None if figures.work.workers else figures.trouble


def _goal_out_of_reach(figures: Figures, names: Names) -> str | None:
    if not figures.is_out_of_reach or figures.goal_s is None:
        return None
    what = rows(figures, figures.rows_per_request) if figures.batches else "the smallest request"
    return (
        f"{what} takes {ms(figures.stats.needed_s)}, longer than {names.goal} ({ms(figures.goal_s)}): "
        "raise the goal or make the model faster"
    )


def _add_workers(figures: Figures, names: Names) -> str | None:
    if not figures.work.workers or not figures.is_estimated or not figures.is_overloaded:
        return None
    if figures.refused_for_load > _A_FEW:
        why = f"{percent(figures.refused_for_load)} of the requests are refused with 503, because "
    elif figures.is_late:
        why = f"{compared_with_goal(figures, names)} at this rate: "
    else:
        why = "there is no room for bursts: "
    missing = figures.missing_workers
    more = count(missing, names.worker, names.workers)
    return f"{why}{load(figures, names)}; add {more} ({names.add})"


def _raise_cap(figures: Figures, names: Names) -> str | None:
    if figures.stats.limit_rows < figures.stats.rules.max_batch_rows:
        return None  # the policy has a limit of its own
    reached = caps_batches(figures) and not _is_full_of_bytes(figures)
    if not reached and limited_by(figures) != "cap":
        return None
    share = percent(figures.share_of_releases("full"))
    most = min(2 * figures.cap, max(figures.best_of(math.inf, figures.goal_s), figures.cap + 1))
    if not reached:
        return (
            f"batches of at most {rows(figures, figures.cap)} are too small for this rate: raise "
            f"{names.cap}, for example to {number(math.floor(most))}"
        )
    return (
        f"the batch cap of {rows(figures, figures.cap)} is reached in {share} of the releases: raise "
        f"{names.cap}, "
        f"for example to {number(math.floor(most))}; {times(figures.gain_of_cap)} as much could be "
        "answered with twice the cap"
    )


def _raise_batch_bytes(figures: Figures, names: Names) -> str | None:
    if names.cap_bytes is None or not _is_full_of_bytes(figures):
        return None
    return (
        f"{percent(figures.share_of_releases('full'))} of the batches are full with "
        f"{rows(figures, figures.mean_rows)} of "
        f"{number(figures.cap)}, because of their bytes: raise {names.cap_bytes} "
        f"({figures.stats.rules.max_batch_bytes})"
    )


def _is_full_of_bytes(figures: Figures) -> bool:
    full = figures.share_of_releases("full") >= MOSTLY
    return full and figures.mean_rows + figures.rows_per_request < _NOT_FULL * figures.cap


def _raise_goal(figures: Figures, names: Names) -> str | None:
    if limited_by(figures) != "goal" or figures.is_out_of_reach or figures.goal_s is None:
        return None
    return (
        f"within {names.goal} ({ms(figures.goal_s)}) a batch can have "
        f"{rows(figures, figures.whole_rows)}; with twice "
        f"the goal {times(figures.gain_of_goal)} as much could be answered: raise it if your clients can wait"
    )


def _raise_queue(figures: Figures, names: Names) -> str | None:
    capacity = figures.usable_capacity
    refused = figures.recent.sheds["queue_full"]
    if not refused or capacity is None or figures.rate > capacity:
        return None
    return (
        f"the queue was full for {count(refused, 'request')}, though on average there is room: raise "
        f"--max-queue-rows ({figures.stats.rules.max_queue_rows}) or --max-queue-bytes for such bursts"
    )


def _client_deadline(figures: Figures, names: Names) -> str | None:
    passed = figures.recent.sheds["client_deadline"]
    if not passed or passed < _A_FEW * figures.asked:
        return None
    took = f", while p50 is {ms(figures.recent.duration.quantile(0.5))}" if figures.recent.ran else ""
    return (
        f"the time that clients allow in X-Request-Timeout-Ms passed for {count(passed, 'request')}{took}: "
        "have them allow more"
    )


def _shared_workers(figures: Figures, names: Names) -> str | None:
    waits = figures.recent.queue_wait.mean
    if figures.busiest_other is None or figures.others_share < MOSTLY or waits <= figures.run_s:
        return None
    return (
        f"requests wait {ms(waits)} for {names.free} and run {ms(figures.run_s)}: other {names.api}s take "
        f"{percent(figures.others_share)} of the time, most of it {figures.busiest_other}: give "
        f"{figures.busiest_other} a server of its own, or add {names.workers} ({names.add})"
    )


def _policy_none(figures: Figures, names: Names) -> str | None:
    if figures.streams or figures.stats.rules.policy != "none" or figures.stats.rules.max_batch_rows == 1:
        return None
    return "policy none merges nothing: every request is a batch of its own; take policy cork to have batches"


def _fixed_window(figures: Figures, names: Names) -> str | None:
    policy, waits = figures.stats.rules.policy, figures.recent.queue_wait.mean
    if not policy.startswith("fixed") or not figures.batches or waits <= figures.run_s:
        return None
    if figures.mean_requests >= 1.5 or figures.is_overloaded:
        return None
    return (
        f"policy {policy} holds requests {ms(waits)} and merges "
        f"{count(figures.mean_requests, 'request')} a batch: "
        "take policy cork, which does not hold where nobody is to come"
    )


def _closed_loop(figures: Figures, names: Names) -> str | None:
    if not is_closed_loop(figures) or figures.is_overloaded or not figures.batches:
        return None
    most = figures.stats.clients * figures.rows_per_request
    if most >= MOSTLY * figures.best_rows or figures.cap == 1:
        return None
    clients = count(figures.stats.clients, "client")
    return (
        f"each client waits for its answer before it sends the next request: with about {clients}, "
        "batches cannot be "
        f"larger than {count(figures.stats.clients, 'request')}; for larger ones, send more at once"
    )


def _thin_traffic(figures: Figures, names: Names) -> str | None:
    if figures.mean_requests >= 2 or is_closed_loop(figures) or not is_thin(figures) or figures.rate <= 0.01:
        return None
    if figures.streams or figures.is_out_of_reach or figures.cap == 1:
        return None
    gap = ms(figures.rows_per_request / figures.rate)
    return (
        f"traffic is thin: requests come {gap} apart on average and one by itself takes "
        f"{ms(figures.seconds(figures.rows_per_request))}; small batches are right"
    )


def _slope_dominated(figures: Figures, names: Names) -> str | None:
    known = figures.stats.known_rows
    if known is None or known[1] < 2 * known[0] or figures.batches < _ENOUGH_BATCHES or figures.cap == 1:
        return None
    gain = figures.gain_of_batches
    if gain >= _WORTH or figures.best_rows < 2 * figures.rows_per_request:
        return None
    unit = "unit of cost" if figures.weighs else "row"
    return (
        f"each {unit} costs almost as much as the first: batching gains at most {times(gain)}; look whether "
        "the model takes them one by one"
    )


def _noisy(figures: Figures, names: Names) -> str | None:
    spread = figures.stats.estimate.spread
    if spread < _NOISY or figures.batches < _ENOUGH_BATCHES:
        return None
    return (
        f"batch times scatter by {percent(spread)} around the estimate, so that goals need much room: "
        "look for other work on this machine, or for rows that take unequal time"
    )


def _errors(figures: Figures, names: Names) -> str | None:
    statuses = figures.recent.statuses
    whys = {500: "the handler raised", 502: f"{names.lost} was lost", 504: "time ran out"}
    told = [
        f"{count(statuses[status], 'answer')} {status} ({why})"
        for status, why in whys.items()
        if statuses[status] > _A_FEW * statuses.total()
    ]
    return f"lately there were {', '.join(told)}: the log says more" if told else None


_ADVICE: dict[str, Callable[[Figures, Names], str | None]] = {
    "no_worker": _no_worker,
    "goal_out_of_reach": _goal_out_of_reach,
    "raise_cap": _raise_cap,
    "raise_batch_bytes": _raise_batch_bytes,
    "raise_goal": _raise_goal,
    "add_workers": _add_workers,
    "raise_queue": _raise_queue,
    "shared_workers": _shared_workers,
    "client_deadline": _client_deadline,
    "errors": _errors,
    "policy_none": _policy_none,
    "fixed_window": _fixed_window,
    "slope_dominated": _slope_dominated,
    "noisy": _noisy,
    "closed_loop": _closed_loop,
    "thin_traffic": _thin_traffic,
}
CODES = tuple(_ADVICE)
"""Every code that there is."""
