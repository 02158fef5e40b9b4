"""Response headers that describe the batch of a request."""

from typing import Any

from uncork_dispatcher import Batch
from uncork_gateway.headers import Header

NAMES = (b"x-batch-id", b"x-batch-size")
"""The headers that only one gateway may set in a response."""
_BATCH = b"x-batch-id: %b\r\nx-batch-size: %d\r\nserver-timing: queue;dur="


class BatchHeaders:
    """Writes the id, size and times of a batch as header lines.

    Ids begin with ``instance``, so that the ids of two gateways differ.
    """

    def __init__(self, instance: str) -> None:
        self._instance = instance
        self._batch: Batch[Any] | None = None
        self._lines = ("", b"", b"")
        self._paired: Batch[Any] | None = None
        self._pairs: tuple[Header, ...] = ()

    def id_of(self, batch: int) -> str:
        """Return the id of a batch, as in headers and logs."""
        return f"{self._instance}-{batch}"

    def lines(self, batch: Batch[Any], queued_s: float) -> tuple[str, bytes]:
        """Return the id of a batch, and the header lines for one response."""
        if batch is not self._batch:
            batch_id = self.id_of(batch.number)
            self._batch = batch
            self._lines = (
                batch_id,
                _BATCH % (batch_id.encode(), batch.count),
                b", batch;dur=%.2f\r\n" % (batch.seconds * 1000),
            )
        batch_id, before, after = self._lines
        return batch_id, b"%b%.2f%b" % (before, queued_s * 1000, after)

    def pairs(self, batch: Batch[Any], queued_s: float) -> tuple[Header, ...]:
        """Return the headers for one response, with names in lower case."""
        if batch is not self._paired:
            self._paired = batch
            self._pairs = (
                (b"x-batch-id", self.id_of(batch.number).encode()),
                (b"x-batch-size", b"%d" % batch.count),
            )
        timing = b"queue;dur=%.2f, batch;dur=%.2f" % (queued_s * 1000, batch.seconds * 1000)
        return (*self._pairs, (b"server-timing", timing))

    def opening_lines(self, batch: int, rows: int, queued_s: float) -> bytes:
        """Return the header lines for a response that begins before its batch has ended."""
        return _BATCH % (self.id_of(batch).encode(), rows) + b"%.2f\r\n" % (queued_s * 1000)
