"""A line for each request and each batch, for whoever asks for them."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from uncork_dispatcher import BatchFacts, BatchStatus, Observer, ShedReason, Start
from uncork_gateway.errors import CLIENT_GONE
from uncork_gateway.requests.batch_headers import BatchHead

_requests = logging.getLogger("uncork.access")
_batches = logging.getLogger("uncork.batches")

_FAILED = 500


class AccessLog:
    """Logs a line at level info when a request has its answer, or its client has left (499)."""

    def request(
        self, method: str, target: bytes, status: int, seconds: float, *, size: int, batch_id: str = ""
    ) -> None:
        """Log a request; ``size`` is the bytes of its body, ``batch_id`` empty if it was in none."""
        path = target.partition(b"?")[0].decode("ascii", "backslashreplace")
        _requests.info(
            "%s %s %d %.2f ms, %d bytes%s",
            *(method, path, status, seconds * 1000, size, batch_id and f", batch {batch_id}"),
            extra={
                "method": method,
                "path": path,
                "status": status,
                "duration_ms": round(seconds * 1000, 3),
                "request_bytes": size,
                "batch": batch_id,
            },
        )

    def wrap(self, app: ASGIApp) -> ASGIApp:
        """The app, with its requests logged."""

        async def logged(scope: Scope, receive: Receive, send: Send) -> None:
            began, status, size = time.perf_counter(), CLIENT_GONE, 0

            async def counting() -> Message:
                nonlocal size
                message = await receive()
                size += len(message.get("body", b""))
                return message

            async def noting(message: Message) -> None:
                nonlocal status
                status = message.get("status", status)
                await send(message)

            try:
                await app(scope, counting, noting)
            except Exception:
                status = _FAILED
                raise
            finally:
                seconds = time.perf_counter() - began
                self.request(scope["method"], scope["raw_path"], status, seconds, size=size)

        return logged


class BatchLog:
    """An observer that logs a line at level debug when a batch has ended."""

    def __init__(self, batch_head: BatchHead) -> None:
        self._batch_head = batch_head

    def batch_started(self, start: Start, rows: int, queued_s: Sequence[float]) -> None:
        """Its end tells of it."""

    def batch_ended(self, batch: BatchFacts, ending: BatchStatus) -> None:
        """Log all that is known of it."""
        start = batch.start
        fields: dict[str, Any] = {
            "batch": self._batch_head.id_of(start.batch),
            "api": start.api,
            "reason": start.reason,
            "rows": batch.rows,
            "requests": len(start.requests),
            "waited_ms": round(batch.waited_s * 1000, 3),
            "predicted_ms": round(start.predicted_s * 1000, 3),
            "actual_ms": round(batch.seconds * 1000, 3),
            "outcome": ending,
        }
        text = ", ".join([f"{name} {value}" for name, value in fields.items()])
        _batches.debug("%s", text, extra=fields)

    def request_shed(self, api: str, reason: ShedReason) -> None:
        """Was in no batch."""


def batch_observers(batch_head: BatchHead) -> list[Observer]:
    """A :class:`BatchLog` if somebody reads it: nothing is worked out for nobody."""
    return [BatchLog(batch_head)] if _batches.isEnabledFor(logging.DEBUG) else []
