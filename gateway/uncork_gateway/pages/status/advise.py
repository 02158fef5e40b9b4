"""Advice, as pure functions of an API's figures. Each kind has a stable code."""

import math
from collections.abc import Callable

from uncork_gateway.pages.status.document import Advice
from uncork_gateway.pages.status.figures import A_FEW, MANY_REQUESTS, MOSTLY, Figures
from uncork_gateway.pages.status.formatting import (
    Names,
    as_sentence,
    count,
    exact,
    exact_ms,
    mebibytes,
    ms,
    number,
    percent,
    with_noun,
)
from uncork_gateway.pages.status.phrases import (
    cap,
    compared_with_goal,
    load,
    of_requests,
    queue_limits,
    rows,
    thin_traffic,
    time_spent,
    too_much,
    unit,
    what_failed,
)

# Below this gain batching is hardly worthwhile.
_WORTH = 1.2
# A smaller gain is next to nothing.
_HARDLY = 1.05
_NOISY = 0.5
_ENOUGH_BATCHES = 20
# From this mean on, requests may mix lengths.
_SEVERAL_ROWS = 2
_OF_BYTES = ("bytes", "longest_bytes")
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
    if figures.work.workers:
        return None
    return f"{as_sentence(figures.not_ready_reason)} {names.until_ready}"


def _errors(figures: Figures, names: Names) -> str | None:
    failed = what_failed(figures, names)
    if failed is None:
        return None
    errors, failure = figures.recent.counts.errors, figures.failure
    remedies = []
    if errors[500] and failure is not None:
        remedies.append(f"Fix the handler: the log has the traceback under error id {failure.error_id}.")
    if errors[504]:
        remedies.append(f"Find out why batches take so long, or raise {names.timeout}.")
    return " ".join([failed, *(remedies or [f"Look for the cause in {names.log}."])])


def _goal_out_of_reach(figures: Figures, names: Names) -> str | None:
    if not figures.is_out_of_reach or figures.goal_s is None:
        return None
    smallest = rows(figures, figures.stats.smallest_rows)
    return (
        f"Even alone, a request of {smallest} takes about {ms(figures.needed_s)}, longer than the goal "
        f"({names.goal}, {exact_ms(figures.goal_s)}). Raise the goal, or make the model faster."
    )


def _split_requests(figures: Figures, names: Names) -> str | None:
    """Advise against padding inside requests. The dispatcher limits that between requests by itself."""
    padding, estimate, recent = figures.stats.padding, figures.estimate, figures.recent
    if padding is None or estimate is None or padding.measure != "longest" or padding.share < MOSTLY:
        return None
    # Between requests, padding takes less than the fixed part of a batch.
    if estimate.slope_s * recent.mean_rows * padding.share <= estimate.intercept_s:
        return None
    if recent.counted_rows_per_request < _SEVERAL_ROWS or not (figures.is_overloaded or figures.is_late):
        return None
    return (
        f"{percent(padding.share)} of the work is padding, because requests of about "
        f"{number(recent.counted_rows_per_request)} rows mix different lengths. Have clients send rows of "
        "similar length together, or one row per request."
    )


def _add_workers(figures: Figures, names: Names) -> str | None:
    in_bursts = figures.recent.refused_for_load > A_FEW
    if not figures.work.workers or figures.capacity is None or not (figures.is_overloaded or in_bursts):
        return None
    if in_bursts:
        refused = of_requests(figures, figures.recent.refused)
        why = f"The gateway refused {refused}. {too_much(figures, names)}"
    elif figures.is_late:
        why = f"{compared_with_goal(figures, names)} {load(figures, names)}"
    elif figures.waits_for_workers:
        why = f"{time_spent(figures)}. {load(figures, names)}"
    else:
        why = f"{load(figures, names)} That leaves no room for bursts."
    more = count(figures.missing_workers, names.worker, names.workers)
    return f"{why} {names.add.format(workers=more)}"


def _raise_cap(figures: Figures, names: Names) -> str | None:
    if figures.stats.limit_rows < figures.stats.rules.max_batch_rows:
        return None  # the policy has a limit of its own
    if figures.limited_by != "cap":
        return None
    most = figures.rows_of_twice_the_cap * figures.cap / figures.cap_less_padding
    share = percent(figures.recent.share_of_releases("full"))
    return (
        f"{share} of the batches reach the cap of {cap(figures)}. Larger batches would answer more: raise "
        f"{names.cap}, for example to {exact(math.floor(most + 1e-9))}."
    )


def _raise_batch_bytes(figures: Figures, names: Names) -> str | None:
    if names.cap_bytes is None or not figures.is_full_of_bytes:
        return None
    recent = figures.recent
    size = f"{rows(figures, recent.mean_rows)} of {exact(figures.cap)}"
    return (
        f"{percent(recent.share_of_releases('full'))} of the batches are full at {size}, because of their "
        f"bytes. Raise {names.cap_bytes} (now {mebibytes(figures.stats.rules.max_batch_bytes)})."
    )


def _raise_goal(figures: Figures, names: Names) -> str | None:
    if figures.limited_by != "goal" or figures.is_out_of_reach or figures.goal_s is None:
        return None
    goal, fit = exact_ms(figures.goal_s), rows(figures, figures.rows_under_load)
    return (
        f"To meet the goal ({names.goal}, {goal}) behind another batch of the same size, a batch has at most "
        f"{fit}. Larger batches would answer more: raise the goal if your clients can wait longer."
    )


def _raise_queue(figures: Figures, names: Names) -> str | None:
    capacity = figures.capacity
    refused = figures.recent.counts.sheds["queue_full"]
    if not refused or capacity is None or figures.recent.rate > capacity:
        return None
    return (
        f"The queue was full for {count(refused, 'request')}. {load(figures, names)} For such bursts, raise "
        f"{queue_limits(figures)}."
    )


def _client_deadline(figures: Figures, names: Names) -> str | None:
    passed, recent = figures.recent.counts.sheds["client_deadline"], figures.recent
    if passed <= A_FEW * recent.answered:
        return None
    took = "" if recent.is_few else f" The p50 latency was {ms(recent.counts.duration.quantile(0.5))}."
    they = "it" if passed == 1 else "they"
    return (
        f"The time in X-Request-Timeout-Ms passed for {count(passed, 'request')} before {they} ran.{took} "
        "Have the clients allow more time."
    )


def _shared_workers(figures: Figures, names: Names) -> str | None:
    other = figures.busiest_other
    if not figures.waits_for_others:
        return None
    return (
        f"{time_spent(figures)}. Other {names.apis} took {percent(figures.others_share)} of {names.time}; "
        f"{other} took the most. Give {other} a gateway of its own, {names.add_any}."
    )


def _policy_none(figures: Figures, names: Names) -> str | None:
    if figures.streams or figures.stats.rules.policy != "none" or figures.stats.rules.max_batch_rows == 1:
        return None
    return "Policy none runs each request alone. Set policy cork to run requests in batches."


def _fixed_window(figures: Figures, names: Names) -> str | None:
    policy, recent = figures.stats.rules.policy, figures.recent
    if not policy.startswith("fixed") or not recent.batches or recent.queue_s <= recent.run_s:
        return None
    if recent.mean_requests >= _HARDLY_ANY_MERGED or figures.is_overloaded:
        return None
    merged = with_noun(number(recent.mean_requests), "request")
    return (
        f"Under policy {policy}, a request was queued for {ms(recent.queue_s)} on average, but a batch has "
        f"only {merged}. Set policy cork, which waits only when that pays off."
    )


def _thin_traffic(figures: Figures, names: Names) -> str | None:
    recent = figures.recent
    if recent.mean_requests >= MANY_REQUESTS or figures.is_late or not figures.is_thin:
        return None
    if not figures.merges or figures.is_out_of_reach:
        return None
    return f"Small batches are right at this rate: {thin_traffic(figures)}."


def _slope_dominated(figures: Figures, names: Names) -> str | None:
    recent = figures.recent
    if not figures.slope_is_known or recent.batches < _ENOUGH_BATCHES or not figures.merges:
        return None
    if _split_requests(figures, names) is not None:
        return None  # the padding of the requests takes the time
    factor = figures.gain_of_batches
    if factor >= _WORTH or figures.best_rows < 2 * recent.rows_per_request:
        return None
    gain = f"at most {percent(factor - 1)}" if factor >= _HARDLY else "hardly anything"
    return (
        f"Each {unit(figures)} takes almost as long as the first, so batching gains {gain}. Check whether "
        "the handler loops over rows."
    )


def _give_cost(figures: Figures, names: Names) -> str | None:
    padding = figures.stats.padding
    if names.cost is None or figures.weighs or padding is None:
        return None
    if padding.measure not in _OF_BYTES:
        return None
    return (
        "Batch times depend on the bytes of the request bodies, but limits count rows. Set "
        f'{names.cost}="bytes", or the name of a field, and adapt {names.cap}, which then limits this cost. '
        "Estimates are also accurate sooner after a start."
    )


def _noisy(figures: Figures, names: Names) -> str | None:
    estimate = figures.estimate
    if _give_cost(figures, names) is not None:
        return None
    if estimate is None or estimate.spread < _NOISY or figures.recent.batches < _ENOUGH_BATCHES:
        return None
    cost = " If some rows take far longer than others, define their cost."
    if names.cost is None or figures.weighs:
        cost = ""
    return f"Batch times vary by ±{percent(estimate.spread)} around the estimate. {names.noise}{cost}"


ADVICE: dict[str, Callable[[Figures, Names], str | None]] = {
    "no_worker": _no_worker,
    "errors": _errors,
    "goal_out_of_reach": _goal_out_of_reach,
    "raise_cap": _raise_cap,
    "raise_batch_bytes": _raise_batch_bytes,
    "raise_goal": _raise_goal,
    "policy_none": _policy_none,
    "split_requests": _split_requests,
    "add_workers": _add_workers,
    "raise_queue": _raise_queue,
    "shared_workers": _shared_workers,
    "client_deadline": _client_deadline,
    "fixed_window": _fixed_window,
    "slope_dominated": _slope_dominated,
    "give_cost": _give_cost,
    "noisy": _noisy,
    "thin_traffic": _thin_traffic,
}
"""By code, the most urgent first."""

_NEEDS_NO_STATISTICS = {"no_worker", "errors", "goal_out_of_reach", "policy_none", "client_deadline"}
