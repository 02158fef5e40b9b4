"""Log lines for requests and for batches."""

import logging
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from uncork_dispatcher import Batch, BatchStatus, Observer, longest_queued_s
from uncork_gateway.headers import printable

_requests = logging.getLogger("uncork.access")
_batches = logging.getLogger("uncork.batches")
_MOST_PATH_BYTES = 512


def log_request(
    method: str,
    target: bytes,
    status: int,
    seconds: float,
    *,
    size: int,
    request_id: bytes,
    batch_id: str = "",
    grpc_status: str = "",
    span: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """Log a line at level info for a response, or for a client that disconnected before (499).

    Args:
        status: the HTTP status; for a gRPC call, the HTTP status for its code.
        size: the bytes of the request body.
        request_id: the id in X-Request-Id of the response.
        batch_id: the id of the batch; empty without one.
        grpc_status: the name of a gRPC call's code.
        span: the ids of the request's span, by field; empty without traces.
    """
    request = request_id.decode()
    more = "".join(
        [grpc_status and f", {grpc_status}", batch_id and f", batch {batch_id}", f", request {request}"]
    )
    # A space would look like the end of the path.
    path = printable(target.partition(b"?")[0][:_MOST_PATH_BYTES]).replace(" ", "\\x20")
    _requests.info(
        "%s %s %d %.2f ms, %d bytes%s",
        *(method, path, status, seconds * 1000, size, more),
        extra={
            "method": method,
            "path": path,
            "status": status,
            "duration_ms": round(seconds * 1000, 3),
            "request_bytes": size,
            "batch": batch_id,
            "request": request,
            **({"grpc_status": grpc_status} if grpc_status else {}),
            **span,
        },
    )


class BatchLog(Observer):
    """A dispatcher's observer that logs a line when a batch ends, while the logger's level is debug.

    ``id_of`` returns a batch's id, as in headers and logs, from its number.
    """

    def __init__(self, id_of: Callable[[int], str]) -> None:
        self._id_of = id_of

    def batch_ended(self, batch: Batch[Any], status: BatchStatus) -> None:
        if not _batches.isEnabledFor(logging.DEBUG):
            return
        fields: dict[str, Any] = {
            "batch": self._id_of(batch.number),
            "api": batch.api,
            "reason": batch.reason,
            "rows": batch.count,
            "requests": len(batch.requests),
            "waited_ms": round(longest_queued_s(batch) * 1000, 3),
            "predicted_ms": round(batch.predicted_s * 1000, 3),
            "actual_ms": round(batch.seconds * 1000, 3),
            "outcome": status,
        }
        text = ", ".join([f"{name} {value}" for name, value in fields.items()])
        _batches.debug("%s", text, extra=fields)
