"""Runs one batch inside the worker: merge, call the handler, deal out the results."""

from __future__ import annotations

import itertools
import logging
import time
import uuid
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from uncork_workers.adapters import Adapter, InvalidInput
from uncork_workers.frames import Batch, Reply
from uncork_workers.outputs import encode_rows
from uncork_workers.service import ApiDefinition, Service, find_apis

log = logging.getLogger("uncork.worker")

_OK = 200
_INVALID = 400
_FAILED = 500


class _Outcome(NamedTuple):
    status: int
    body: bytes


class _Part(NamedTuple):
    """Rows that the handler gets in one call, and what they cost together."""

    rows: int
    cost: float


class Executor:
    """Runs the batches of one service object."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._apis = {definition.name: definition for definition in find_apis(type(service))}

    def run(self, batch: Batch, bodies: Sequence[bytes]) -> tuple[Reply, list[bytes]]:
        """Run a batch; every request gets a status and a body, whatever happens."""
        began = time.perf_counter()
        definition = self._apis[batch.api]
        costs = batch.rows if batch.costs is None else batch.costs
        chunks: list[tuple[float, float]] = []
        refused: dict[int, _Outcome] = {}
        worked = True
        try:
            merged = _merge(definition.adapter, bodies, batch.rows, refused)
            texts = self._call(
                definition, merged, _parts(batch.rows, costs, refused, batch.limit_rows), chunks
            )
            answers = _deal(texts, batch.rows, refused)
        except (Exception, SystemExit) as error:
            worked = False
            failure = _failure(batch, error)
            refused = {at: refused.get(at, failure) for at in range(len(bodies))}
            answers = [outcome.body for outcome in refused.values()]
        reply = Reply(
            batch=batch.batch,
            worked=worked,
            seconds=time.perf_counter() - began,
            statuses=[_OK if at not in refused else refused[at].status for at in range(len(bodies))],
            lengths=list(map(len, answers)),
            chunks=chunks,
        )
        return reply, answers

    def _call(
        self,
        definition: ApiDefinition,
        merged: Any,
        parts: Sequence[_Part],
        chunks: list[tuple[float, float]],
    ) -> list[bytes]:
        """Call the handler with one part of the rows after the other; returns one text per row."""
        handler = getattr(self._service, definition.name)
        texts: list[bytes] = []
        for rows, cost in parts:
            began = time.perf_counter()
            results = handler(merged if len(parts) == 1 else merged[len(texts) : len(texts) + rows])
            texts += encode_rows(results, expected=rows)
            chunks.append((cost, time.perf_counter() - began))
        return texts


def _parts(
    rows: Sequence[int], costs: Sequence[float], refused: Mapping[int, _Outcome], limit: float
) -> list[_Part]:
    """The calls of the handler that the requests which are not refused need."""
    if refused:
        good = [at for at in range(len(rows)) if at not in refused]
        rows, costs = [rows[at] for at in good], [costs[at] for at in good]
    return _cut(rows, costs, limit)


def _deal(texts: list[bytes], rows: Sequence[int], refused: Mapping[int, _Outcome]) -> list[bytes]:
    """The body of each answer: the texts of its rows, or why it is refused."""
    if not refused and len(texts) == len(rows):
        return texts
    rest = iter(texts)
    return [
        refused[at].body if at in refused else b",".join(itertools.islice(rest, count))
        for at, count in enumerate(rows)
    ]


def _cut(rows: Sequence[int], costs: Sequence[float], limit: float) -> list[_Part]:
    """Cut the rows of some requests into parts that cost at most ``limit``, or are one row.

    Only what a whole request costs is known: its rows share it equally.
    """
    total = sum(costs)
    if total <= limit:
        return [_Part(sum(rows), total)] if rows else []
    parts: list[_Part] = []
    size, cost = 0, 0.0
    for count, weight in zip(rows, costs, strict=True):
        each = weight / count
        for _ in range(count):
            if size and cost + each > limit:
                parts.append(_Part(size, cost))
                size, cost = 0, 0.0
            size += 1
            cost += each
    return [*parts, _Part(size, cost)]


def _merge(
    adapter: Adapter, bodies: Sequence[bytes], rows: Sequence[int], refused: dict[int, _Outcome]
) -> Any:
    """Parse all bodies at once. Only if that fails look for those to blame, note them, and leave them out."""
    try:
        merged = adapter.merge(bodies)
    except InvalidInput:
        merged = ()
    if len(merged) == sum(rows):
        return merged
    for at, (body, count) in enumerate(zip(bodies, rows, strict=True)):
        outcome = _check(adapter, body, count)
        if outcome is not None:
            refused[at] = outcome
    good = [body for at, body in enumerate(bodies) if at not in refused]
    return adapter.merge(good) if good else None


def _check(adapter: Adapter, body: bytes, rows: int) -> _Outcome | None:
    try:
        adapter.check(body, rows)
    except InvalidInput as error:
        return _Outcome(_INVALID, str(error).encode())
    return None


def _failure(batch: Batch, error: BaseException) -> _Outcome:
    """What the callers of a failed batch get: an id, under which the log has the rest."""
    error_id = uuid.uuid4().hex[:12]
    log.error(
        "api %s failed on a batch of %d rows [%s]", batch.api, sum(batch.rows), error_id, exc_info=error
    )
    return _Outcome(_FAILED, f"the handler of api {batch.api!r} failed; error id {error_id}".encode())
