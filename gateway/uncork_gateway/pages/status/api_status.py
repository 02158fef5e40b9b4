"""Describes one API, or one model behind a proxy, for the document of ``/status``."""

import math
from collections import Counter
from typing import NamedTuple

from uncork_dispatcher import ApiStats, ClassStats, Decision
from uncork_dispatcher.learning.measures import Padding
from uncork_dispatcher.scheduling.bulk import longest_wait_s, most_cycles_s
from uncork_gateway.pages.status import document
from uncork_gateway.pages.status.advise import advice_for
from uncork_gateway.pages.status.explain import sentence, waits_for, why_refused, why_this_size
from uncork_gateway.pages.status.figures import Figures
from uncork_gateway.pages.status.names import Names
from uncork_gateway.telemetry.recent import Recent


class ServedApi(NamedTuple):
    """An API's own route, if any; and whether it defines a cost, and streams."""

    route: str | None = None
    weighs: bool = False
    streams: bool = False


class ScalingNow(NamedTuple):
    """The latest decision, the bounds of the number of workers, and a worker's usual startup time."""

    decision: Decision
    least: int
    most: int
    startup_s: float | None


def describe_api(
    figures: Figures,
    served: ServedApi,
    failure: document.Failure | None,
    names: Names,
    classes: list[document.RequestClass],
    *,
    service: str,
    key: str,
) -> document.Api:
    """Describe an API; ``key`` is its id."""
    stats, recent, counts = figures.stats, figures.recent, figures.recent.counts
    return document.Api(
        id=key,
        service=service,
        name=stats.name,
        route=served.route,
        streams=served.streams,
        counts="cost" if served.weighs else "rows",
        policy=stats.rules.policy,
        goal_ms=None if figures.goal_s is None else figures.goal_s * 1000,
        max_batch_rows=figures.cap,
        workers=stats.workers,
        state=figures.state,
        sentence=sentence(figures, names),
        waits_for=waits_for(figures, names),
        why_this_size=why_this_size(figures, names),
        why_refused=why_refused(figures, names),
        limited_by=figures.limited_by,
        advice=[document.Advice(code=one.code, text=one.text) for one in advice_for(figures, names)],
        window_s=recent.seconds,
        too_few_requests=recent.is_few,
        answered=recent.answered,
        errors=_by_status(counts.errors),
        error_share=recent.error_share if recent.answered else None,
        refused=recent.refused,
        refused_share=recent.refused_share if recent.answered else None,
        coalesced=recent.coalesced,
        coalesced_share=recent.coalesced / recent.requests if recent.requests else None,
        failure=failure,
        requests=_by_status(counts.statuses),
        protocols={name: some.total() for name, some in counts.statuses_by_protocol.items() if some},
        releases=dict(counts.releases),
        sheds=dict(counts.sheds),
        rate_rows=None if recent.is_few else recent.rate,
        capacity_rows=figures.capacity,
        capacity_is_least=figures.capacity_is_least,
        balanced_rows=figures.balanced_rows,
        estimate=_estimate(figures),
        padding=_padding(stats.padding),
        mean_batch_rows=None if recent.is_few or not recent.batches else recent.mean_rows,
        latency=_latency(recent),
        shares=_shares(recent),
        queued_requests=stats.queued_requests,
        queued_rows=stats.queued_rows,
        queued_bytes=stats.queued_bytes,
        oldest_ms=stats.oldest_s * 1000,
        classes=classes,
    )


def describe_classes(
    names: tuple[str, str], figures: Figures, bulk: ClassStats, recent: Recent
) -> list[document.RequestClass]:
    rules = figures.stats.rules
    first = _class(names[0], figures.recent, figures.stats, rules.goal_s, None)
    return [first, _class(names[1], recent, bulk, rules.bulk_goal_s, bulk_limited_by(figures))]


def _class(
    name: str,
    recent: Recent,
    queue: ApiStats | ClassStats,
    goal_s: float | None,
    limited_by: document.BulkLimit | None,
) -> document.RequestClass:
    return document.RequestClass(
        name=name,
        goal_ms=None if goal_s is None or goal_s == math.inf else goal_s * 1000,
        answered=recent.answered,
        refused=recent.refused,
        sheds=dict(recent.counts.sheds),
        rate_rows=None if recent.is_few else recent.rate,
        latency=_latency(recent),
        queued_requests=queue.queued_requests,
        queued_rows=queue.queued_rows,
        queued_bytes=queue.queued_bytes,
        oldest_ms=queue.oldest_s * 1000,
        limited_by=limited_by,
    )


def _by_status(counts: Counter[int]) -> dict[str, int]:
    return {str(status): count for status, count in sorted(counts.items())}


def _estimate(figures: Figures) -> document.Estimate | None:
    estimate, known = figures.estimate, figures.stats.known_rows
    if estimate is None or known is None:
        return None
    return document.Estimate(
        intercept_ms=estimate.intercept_s * 1000,
        slope_ms=estimate.slope_s * 1000,
        spread=estimate.spread,
        rows=known,
    )


def _padding(padding: Padding | None) -> document.Padding | None:
    if padding is None:
        return None
    limit = padding.length_limit
    return document.Padding(
        measure=padding.measure, share=padding.share, length_limit=limit if math.isfinite(limit) else None
    )


def _latency(recent: Recent) -> document.Latency | None:
    if recent.is_few:
        return None
    p50, p95, p99 = (recent.counts.duration.quantile(share) * 1000 for share in (0.5, 0.95, 0.99))
    return document.Latency(p50_ms=p50, p95_ms=p95, p99_ms=p99)


def _shares(recent: Recent) -> document.TimeShares | None:
    if recent.is_few or not recent.counts.ran:
        return None
    return document.TimeShares(
        queue_ms=recent.queue_s * 1000,
        batch_ms=recent.run_s * 1000,
        transport_ms=recent.transport_s * 1000,
    )


def bulk_limited_by(figures: Figures) -> document.BulkLimit | None:
    """Return the limit on the rows of the second class in a batch; None if unknown."""
    stats, rate, workers = figures.stats, figures.recent.rate, figures.work.workers
    if figures.estimate is None or not workers:
        return None
    # The displayed estimate includes the transport.
    cycles_s = most_cycles_s(
        rate, figures.estimate, workers=workers, transport_s=0.0, limit_rows=stats.limit_rows
    )
    wait_s = longest_wait_s(stats.rules.goal_s, rate, figures.estimate) if rate else math.inf
    rows = figures.estimate.rows_within(min(wait_s, cycles_s), z=0)
    if rows >= stats.limit_rows:
        return "cap"
    if rows < 1:
        return "share"
    return "goal" if wait_s <= cycles_s else "cycles"
