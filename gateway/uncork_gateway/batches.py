"""A batch in the dispatcher's terms and in those of the frames to the workers."""

from __future__ import annotations

from uncork_dispatcher import Job, Ran, WorkerLost
from uncork_gateway.codecs import AcceptKey, Marshalled, RawKey, TableKey, TensorKey
from uncork_gateway.dialects.base import RowsReply
from uncork_gateway.upstreams.worker_connection import Executed
from uncork_workers.description import ApiSettings
from uncork_workers.frames import Batch


def to_frame(
    job: Job[Marshalled], settings: ApiSettings, *, batch_id: str, trace: tuple[str, str] | None = None
) -> tuple[Batch, list[bytes]]:
    """What a worker is told to run, and the bodies that go with it."""
    accept, key = "", job.start.key
    if isinstance(key, AcceptKey):
        accept, key = key
    bodies = [asked.body for asked in job.payloads]
    batch = Batch(
        batch=job.start.batch,
        api=job.start.api,
        limit_rows=settings.limit_rows,
        lengths=list(map(len, bodies)),
        rows=job.rows,
        allowed_batch_sizes=settings.allowed_batch_sizes,
        costs=None if job.costs == job.rows else job.costs,
        idempotent=settings.idempotent,
        timeout_s=settings.timeout,
        form=key.form() if isinstance(key, TensorKey | TableKey | RawKey) else None,
        metas=[asked.meta for asked in job.payloads if asked.meta is not None] or None,
        accept=accept,
        id=batch_id,
        left_s=job.left_s,
        trace=trace,
    )
    return batch, bodies


def from_frame(job: Job[Marshalled], outcome: Executed | WorkerLost) -> Ran[RowsReply] | WorkerLost:
    """What came of a batch."""
    if isinstance(outcome, WorkerLost):
        return outcome
    reply = outcome.reply
    results = [
        RowsReply(status, body, reply.datatype, reply.shape)
        for status, body in zip(reply.statuses, outcome.bodies, strict=True)
    ]
    if reply.content_types is not None:
        headers = reply.headers or [[]] * len(results)
        results = [
            result._replace(content_type=content_type, headers=own)
            for result, content_type, own in zip(results, reply.content_types, headers, strict=True)
        ]
    for at, pieces in reply.reasons.items():
        asked = job.payloads[at]
        reason = "".join([piece if isinstance(piece, str) else asked.path_to(piece) for piece in pieces])
        results[at] = results[at]._replace(body=reason.encode())
    start = job.start
    whole = len(reply.chunks) == 1 and reply.chunks[0][0] == start.rows
    return Ran(
        results,
        outcome="worked" if reply.worked and reply.chunks else "failed",
        # To parse and to write results is work of a batch too.
        chunks=[(start.rows, reply.seconds)] if whole else reply.chunks,
    )
