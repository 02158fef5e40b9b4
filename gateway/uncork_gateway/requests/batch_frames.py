"""Conversion of batches between the dispatcher and the frames of workers."""

import math
from collections.abc import Sequence

from msgspec.structs import replace

from uncork_dispatcher import BatchResult, Job, Start
from uncork_gateway.backends.worker_replies import Executed
from uncork_gateway.codecs import AcceptKey, Marshalled
from uncork_gateway.dialects.base import HandlerResult
from uncork_workers.wire.messages import Batch, RowResult, compact_forms, expand_forms
from uncork_workers.wire.schema import ApiSettings


def to_frame(
    job: Job[Marshalled], settings: ApiSettings, *, batch_id: str, trace: tuple[str, str] | None = None
) -> tuple[Batch, list[bytes]]:
    """Return the frame of a batch, and the bodies that follow it."""
    key = job.start.key
    bodies = [asked.body for asked in job.payloads]
    raw = [asked.raw for asked in job.payloads]
    batch = Batch(
        batch=job.start.batch,
        api=job.start.api,
        limit_rows=_limit_rows(job.start, settings),
        lengths=list(map(len, bodies)),
        rows=job.rows,
        allowed_batch_sizes=settings.allowed_batch_sizes,
        allowed_lengths=settings.allowed_lengths or (),
        costs=_row_costs(job.payloads),
        idempotent=settings.idempotent,
        timeout_s=settings.timeout,
        forms=compact_forms([asked.form for asked in job.payloads]),
        metas=[asked.meta for asked in job.payloads if asked.meta is not None] or None,
        accept=key.accept if isinstance(key, AcceptKey) else "",
        raw=raw if any(raw) else None,
        id=batch_id,
        left_s=job.left_s,
        trace=trace,
    )
    return batch, bodies


def _limit_rows(start: Start, settings: ApiSettings) -> int:
    """Return the largest cost of a handler call.

    Long rows of a model that truncates them cost more than they count; a batch within the limit is one call.
    """
    if settings.cost is not None and start.padded <= settings.limit_rows:
        return max(settings.limit_rows, math.ceil(start.rows))
    return settings.limit_rows


def _row_costs(payloads: Sequence[Marshalled]) -> list[float] | None:
    """Return the cost of each row; None if none has one."""
    if not any(asked.cost.of_rows for asked in payloads):
        return None
    # A request from before a reload that added the cost has none.
    return [cost for asked in payloads for cost in asked.cost.of_rows or [1] * asked.rows]


def from_frame(job: Job[Marshalled], outcome: Executed) -> BatchResult[HandlerResult]:
    """Return the result of a batch from the worker's reply."""
    reply = outcome.reply
    forms = expand_forms(reply.forms, len(reply.statuses))
    results = list(map(HandlerResult, reply.statuses, outcome.bodies, forms))
    if reply.content_types is not None:
        headers = reply.headers or [[]] * len(results)
        results = [
            replace(result, content_type=content_type, headers=own)
            for result, content_type, own in zip(results, reply.content_types, headers, strict=True)
        ]
    for at, pieces in reply.reasons.items():
        asked = job.payloads[at]
        reason = "".join([piece if isinstance(piece, str) else asked.path_to(piece) for piece in pieces])
        results[at] = replace(results[at], body=reason.encode())
    start = job.start
    whole = len(reply.chunks) == 1 and reply.chunks[0][0] == start.rows
    return BatchResult(
        results,
        status="worked" if reply.worked and reply.chunks else "failed",
        # These seconds include parsing the requests and writing the results.
        chunks=[(start.rows, reply.seconds)] if whole else reply.chunks,
    )


def result_of_row(row: RowResult) -> HandlerResult:
    """Return a warm-up's result as that of a request of one row."""
    return HandlerResult(200, row.body, row.form, row.content_type)
