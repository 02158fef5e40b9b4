"""Selects the advice for an API, as pure functions of its figures."""

import math
from collections.abc import Callable, Iterator
from typing import Any

from uncork_dispatcher.advice import WORTH, Advice, advise
from uncork_gateway.pages.status.figures import A_FEW, MANY_REQUESTS, MOSTLY, Figures
from uncork_gateway.pages.status.names import Names

_NOISY = 0.5
_ENOUGH_BATCHES = 20
# From this mean on, requests may mix lengths.
_SEVERAL_ROWS = 2
_OF_BYTES = ("bytes", "longest_bytes")
# Below this mean, most batches are a single request.
_HARDLY_ANY_MERGED = 1.5
_ERRORS = {502: "errors/lost", 504: "errors/timed_out"}


def advice_for(figures: Figures, names: Names) -> list[Advice]:
    """Return all advice, most urgent first; with few requests, only advice that needs no statistics."""
    return [
        advice
        for code, find in ADVICE.items()
        if code in _NEEDS_NO_STATISTICS or not figures.recent.is_few
        for advice in find(figures, names)
    ]


def unit(figures: Figures) -> str:
    return "unit of cost" if figures.weighs else "row"


def load(figures: Figures, names: Names) -> dict[str, Any]:
    """Return arrivals and capacity as values for an advice's text."""
    return {
        "rate": figures.recent.rate,
        "unit": unit(figures),
        "workers": figures.work.workers,
        "part": names.part,
        "about": "at least" if figures.capacity_is_least else "about",
        "capacity": figures.capacity,
    }


def _no_worker(figures: Figures, names: Names) -> Iterator[Advice]:
    if not figures.work.workers and figures.not_ready_reason:
        yield advise("no_worker", reason=figures.not_ready_reason.rstrip("."), log=names.log)


def _memory_limit(figures: Figures, names: Names) -> Iterator[Advice]:
    fits = figures.stats.fits
    if fits < figures.stats.rules.max_batch_rows:
        yield advise(
            "memory_limit",
            fits=fits,
            unit=unit(figures),
            part=names.part,
            setting=names.cap,
            to=max(1, math.floor(fits)),
        )


def _errors(figures: Figures, names: Names) -> Iterator[Advice]:
    recent, failure = figures.recent, figures.failure
    if recent.error_share <= A_FEW:
        return
    for status, failed in recent.counts.errors.most_common():
        given: dict[str, Any] = {"failed": failed, "answered": recent.answered, "status": status}
        if status == 500 and failure is not None:
            place = f" ({failure.place})" if failure.place else ""
            given |= {"error": failure.error, "place": place, "error_id": failure.error_id}
            yield advise("errors/raised", **given, log=names.log)
        else:
            words = {"handler": names.handler, "lost": names.lost, "timeout": names.timeout, "log": names.log}
            yield advise(_ERRORS.get(status, "errors"), **given, **words)


def _goal_out_of_reach(figures: Figures, names: Names) -> Iterator[Advice]:
    if figures.is_out_of_reach:
        yield advise(
            "goal_out_of_reach",
            rows=figures.stats.smallest_rows,
            unit=unit(figures),
            needed_s=figures.needed_s,
            goal_s=figures.goal_s,
            setting=names.goal,
        )


def _split_requests(figures: Figures, names: Names) -> Iterator[Advice]:
    """Advise against padding inside requests; the dispatcher limits padding between requests itself."""
    padding, estimate, recent = figures.stats.padding, figures.estimate, figures.recent
    if padding is None or estimate is None or padding.measure != "longest" or padding.share < MOSTLY:
        return
    # Between requests, padding takes less than the fixed part of a batch.
    if estimate.slope_s * recent.mean_rows * padding.share <= estimate.intercept_s:
        return
    if recent.counted_rows_per_request >= _SEVERAL_ROWS and (figures.is_overloaded or figures.is_late):
        yield advise("split_requests", share=padding.share, rows=recent.counted_rows_per_request)


def _add_workers(figures: Figures, names: Names) -> Iterator[Advice]:
    recent = figures.recent
    is_refused = recent.refused_for_load > A_FEW
    if not figures.work.workers or figures.capacity is None or not (figures.is_overloaded or is_refused):
        return
    given = {
        **load(figures, names),
        "more": figures.missing_workers,
        "option": "workers of this API" if figures.stats.rules.workers else names.option,
        "apis": names.apis,
        "others": figures.others_share,
    }
    refused = {"refused": recent.refused, "answered": recent.answered}
    if figures.is_shared:
        yield advise("add_workers/shared", **given)
    elif is_refused:
        yield advise(
            "add_workers/bursts" if figures.has_headroom else "add_workers/refused", **given, **refused
        )
    elif figures.waits_for_workers:
        yield advise("add_workers/waiting", **given, queue_s=recent.queue_s, run_s=recent.run_s)
    else:
        yield advise("add_workers", **given)


def _raise_cap(figures: Figures, names: Names) -> Iterator[Advice]:
    if figures.stats.limit_rows < figures.stats.rules.max_batch_rows or figures.limited_by != "cap":
        return  # or the policy has a limit of its own
    most = figures.rows_of_twice_the_cap * figures.cap / figures.cap_less_padding
    yield advise(
        "raise_cap",
        share=figures.recent.share_of_releases("full"),
        cap=figures.cap,
        unit=unit(figures),
        setting=names.cap,
        to=math.floor(most + 1e-9),
    )


def _raise_batch_bytes(figures: Figures, names: Names) -> Iterator[Advice]:
    if names.cap_bytes is not None and figures.is_full_of_bytes:
        yield advise(
            "raise_batch_bytes",
            share=figures.recent.share_of_releases("full"),
            rows=figures.recent.mean_rows,
            unit=unit(figures),
            cap=figures.cap,
            setting=names.cap_bytes,
            now=figures.stats.rules.max_batch_bytes,
        )


def _raise_goal(figures: Figures, names: Names) -> Iterator[Advice]:
    if figures.limited_by == "goal" and not figures.is_out_of_reach:
        yield advise(
            "raise_goal",
            goal_s=figures.goal_s,
            rows=figures.rows_under_load,
            unit=unit(figures),
            setting=names.goal,
        )


def goal_with_room_s(figures: Figures) -> float | None:
    """Return a goal with room for bulk in a batch, if bulk is queued and the current goal has no room.

    There is room if a request may wait for a batch and share the next: three times the fixed part.
    """
    bulk, estimate = figures.stats.bulk, figures.estimate
    if bulk is None or not bulk.queued_requests or estimate is None:
        return None
    needed_s = 3 * estimate.upper(0)
    return needed_s if needed_s > figures.stats.rules.goal_s else None


def _bulk_without_room(figures: Figures, names: Names) -> Iterator[Advice]:
    goal_s = goal_with_room_s(figures)
    if goal_s is not None:
        yield advise(
            "bulk_without_room",
            goal_s=figures.stats.rules.goal_s,
            fixed_s=figures.seconds(0),
            setting=names.goal,
            to_s=goal_s,
        )


def _raise_queue(figures: Figures, names: Names) -> Iterator[Advice]:
    refused, rules = figures.recent.counts.sheds["queue_full"], figures.stats.rules
    if refused and figures.capacity is not None and figures.recent.rate <= figures.capacity:
        limits = {"queue_rows": rules.max_queue_rows, "queue_bytes": rules.max_queue_bytes}
        given = {**load(figures, names), **limits, "apis": names.apis, "others": figures.others_share}
        yield advise("raise_queue/shared" if figures.is_shared else "raise_queue", refused=refused, **given)


def _client_deadline(figures: Figures, names: Names) -> Iterator[Advice]:
    passed = figures.recent.counts.sheds["client_deadline"]
    if passed > A_FEW * figures.recent.answered:
        yield advise("client_deadline", passed=passed)


def _long_neighbor(figures: Figures, names: Names) -> Iterator[Advice]:
    if figures.misses_behind_others and figures.longest_other is not None:
        other, other_s = figures.longest_other
        yield advise(
            "long_neighbor" if names.reserves else "long_neighbor/proxy",
            other=other,
            other_s=other_s,
            parts=names.parts,
            goal_s=figures.goal_s,
            option=names.option,
            to=max(2, figures.work.workers),
        )


def _shared_workers(figures: Figures, names: Names) -> Iterator[Advice]:
    if figures.waits_for_others and not figures.misses_behind_others:
        yield advise(
            "shared_workers",
            queue_s=figures.recent.queue_s,
            run_s=figures.recent.run_s,
            others=figures.others_share,
            other=figures.busiest_other,
            apis=names.apis,
            parts=names.parts,
            option=names.option,
        )


def _policy_none(figures: Figures, names: Names) -> Iterator[Advice]:
    rules = figures.stats.rules
    if not figures.streams and rules.policy == "none" and rules.max_batch_rows != 1:
        yield advise("policy_none")


def _fixed_window(figures: Figures, names: Names) -> Iterator[Advice]:
    rules, recent = figures.stats.rules, figures.recent
    if not recent.batches or recent.queue_s <= recent.run_s or rules.make_policy().longest_hold_s == math.inf:
        return
    if recent.mean_requests < _HARDLY_ANY_MERGED and not figures.is_overloaded:
        queue_s, requests = recent.queue_s, recent.mean_requests
        yield advise("fixed_window", policy=rules.policy, queue_s=queue_s, requests=requests)


def _thin_traffic(figures: Figures, names: Names) -> Iterator[Advice]:
    recent = figures.recent
    if recent.mean_requests >= MANY_REQUESTS or figures.is_late or not figures.is_thin:
        return
    if figures.merges and not figures.is_out_of_reach:
        yield advise("thin_traffic", gap_s=recent.gap_s, alone_s=figures.alone_s(recent.rows_per_request))


def _slope_dominated(figures: Figures, names: Names) -> Iterator[Advice]:
    recent = figures.recent
    if not figures.slope_is_known or recent.batches < _ENOUGH_BATCHES or not figures.merges:
        return
    if any(_split_requests(figures, names)):
        return  # the padding of the requests takes the time
    if figures.gain_of_batches < WORTH and figures.best_rows >= 2 * recent.rows_per_request:
        gain, rows = figures.gain_of_batches, figures.best_rows
        yield advise("slope_dominated", rows=rows, unit=unit(figures), gain=gain)


def _give_cost(figures: Figures, names: Names) -> Iterator[Advice]:
    padding = figures.stats.padding
    if names.has_cost and not figures.weighs and padding is not None and padding.measure in _OF_BYTES:
        yield advise("give_cost", cost="bytes", setting=names.cap)


def _noisy(figures: Figures, names: Names) -> Iterator[Advice]:
    estimate = figures.estimate
    if estimate is None or estimate.spread < _NOISY or figures.recent.batches < _ENOUGH_BATCHES:
        return
    if not any(_give_cost(figures, names)):
        key = "noisy/cost" if names.has_cost and not figures.weighs else "noisy"
        yield advise(key, spread=estimate.spread, machine=names.machine)


ADVICE: dict[str, Callable[[Figures, Names], Iterator[Advice]]] = {
    "no_worker": _no_worker,
    "errors": _errors,
    "memory_limit": _memory_limit,
    "goal_out_of_reach": _goal_out_of_reach,
    "raise_cap": _raise_cap,
    "raise_batch_bytes": _raise_batch_bytes,
    "raise_goal": _raise_goal,
    "bulk_without_room": _bulk_without_room,
    "policy_none": _policy_none,
    "split_requests": _split_requests,
    "add_workers": _add_workers,
    "raise_queue": _raise_queue,
    "long_neighbor": _long_neighbor,
    "shared_workers": _shared_workers,
    "client_deadline": _client_deadline,
    "fixed_window": _fixed_window,
    "slope_dominated": _slope_dominated,
    "give_cost": _give_cost,
    "noisy": _noisy,
    "thin_traffic": _thin_traffic,
}
"""By code, the most urgent first."""

_NEEDS_NO_STATISTICS = {
    "no_worker",
    "errors",
    "memory_limit",
    "goal_out_of_reach",
    "policy_none",
    "client_deadline",
}
