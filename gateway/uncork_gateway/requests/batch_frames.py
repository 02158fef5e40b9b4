"""Converts batches to the frames for workers, and replies to results."""

import math
from collections.abc import Sequence

from msgspec.structs import replace

from uncork_dispatcher import Batch, BatchResult, BatchStatus, Submission, payloads_of
from uncork_gateway.backends.worker_connection import Executed
from uncork_gateway.codecs import Marshalled
from uncork_gateway.dialects.base import HandlerResult
from uncork_workers.wire import messages
from uncork_workers.wire.forms import compact_forms, expand_forms
from uncork_workers.wire.messages import RowResult
from uncork_workers.wire.schema import REQUEST_ID, ApiSettings


def to_frame(
    batch: Batch[Submission[Marshalled, HandlerResult]],
    settings: ApiSettings,
    *,
    batch_id: str,
    trace: tuple[str, str] | None = None,
    fits: float | None = None,
    has_headers: bool = False,
) -> tuple[messages.Batch, list[bytes]]:
    """Return a batch as a message to a worker, and the bodies that follow the message.

    The handler may read headers of the requests if ``has_headers``.
    """
    first, limit_rows = batch.requests[0].payload, settings.limit_rows
    if settings.cost is not None and batch.padded <= limit_rows:
        # A model may truncate long rows, which then count less than their cost; a batch within the limit
        # always runs as one call.
        limit_rows = max(limit_rows, math.ceil(batch.rows))
    payloads = payloads_of(batch)
    bodies, rows = [one.body for one in payloads], [one.rows for one in payloads]
    raw, parameters = [one.raw for one in payloads], [one.parameters for one in payloads]
    frame = messages.Batch(
        batch=batch.number,
        api=batch.api,
        limit_rows=limit_rows,
        lengths=list(map(len, bodies)),
        rows=rows,
        allowed_batch_sizes=settings.allowed_batch_sizes,
        allowed_lengths=settings.allowed_lengths or (),
        costs=_row_costs([one.cost.of_rows for one in payloads], rows),
        idempotent=settings.idempotent,
        timeout_s=settings.timeout,
        forms=compact_forms([one.form for one in payloads]),
        metas=[one.meta for one in payloads if one.meta] or None,
        accept=first.accept,
        raw=raw if any(raw) else None,
        id=batch_id,
        left_s=batch.left_s,
        trace=trace,
        pads=batch.pads,
        fits=fits,
        group=first.group,
        parameters=parameters if any(parameters) else None,
        bulk=[request.bulk for request in batch.requests] if batch.bulk_rows else None,
        headers=list(map(_headers_of, payloads)) if has_headers else None,
    )
    return frame, bodies


def _headers_of(asked: Marshalled) -> dict[str, str]:
    headers = dict(asked.headers)
    if asked.request_id:
        headers[REQUEST_ID] = asked.request_id
    return headers


def _row_costs(costs: Sequence[Sequence[float]], rows: Sequence[int]) -> list[float] | None:
    """Return the cost of each row, from costs and number of rows of each request; None without costs."""
    if not any(costs):
        return None
    # A request from before a reload that added the cost has none.
    return [cost for own, count in zip(costs, rows, strict=True) for cost in own or [1] * count]


def from_frame(
    batch: Batch[Submission[Marshalled, HandlerResult]], outcome: Executed
) -> BatchResult[HandlerResult]:
    """Return a batch's result from the worker's reply."""
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
        asked = batch.requests[at].payload
        reason = "".join([piece if isinstance(piece, str) else asked.path_to(piece) for piece in pieces])
        results[at] = replace(results[at], body=reason.encode())
    has_run = reply.chunks or batch.requests[0].payload.sink is not None  # a stream has no calls to measure
    status: BatchStatus = "worked" if reply.worked and has_run else "failed"
    if (reply.cancelled or reply.timed_out) and not reply.exceptions:
        status = "cancelled" if reply.cancelled else "timed_out"
    chunks, prepare_s = reply.chunks, None
    if len(chunks) == 1 and chunks[0][0] == batch.rows:
        seconds = reply.seconds  # with parsing the requests and writing the results
        if reply.overlaps and reply.stages_s is not None:
            prepare_s, *rest_s = reply.stages_s
            # Without the wait for a batch before; the slower side limits how many batches end.
            seconds = max(prepare_s, sum(rest_s))
        chunks = [(batch.rows, seconds)]
    return BatchResult(results, status=status, chunks=chunks, prepare_s=prepare_s)


def result_of_row(row: RowResult) -> HandlerResult:
    """Convert a warm-up's result to the result of a request with one row."""
    return HandlerResult(200, row.body, row.form, row.content_type)
