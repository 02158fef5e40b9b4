"""What a handler can know of the batch that it runs, and what its log lines say of it."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """The batch that runs.

    Attributes:
        batch_id: as the callers see it in ``X-Batch-Id``.
        api: which api it is for.
        worker_index: number of the worker, from 0.
        requests: how many share it.
        rows: how many rows they have together.
    """

    batch_id: str
    api: str
    worker_index: int
    requests: int
    rows: int


_current: ContextVar[Context] = ContextVar("uncork_context")


def context() -> Context:
    """The batch that the calling handler runs.

    Raises:
        LookupError: if none runs here: in ``setup``, or in a thread of the handler's own.
    """
    try:
        return _current.get()
    except LookupError:
        raise LookupError("uncork.context() is for handlers, while they run a batch") from None


@contextmanager
def running(batch: Context) -> Iterator[None]:
    """Have it be known until the block ends."""
    token = _current.set(batch)
    try:
        yield
    finally:
        _current.reset(token)


class BatchOfRecord(logging.Filter):
    """Gives log records the field ``batch``: which one they are from, or nothing."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Let everything through."""
        batch = _current.get(None)
        record.batch = "" if batch is None else f" [batch {batch.batch_id}]"
        return True
