"""A batch that is filled from a queue, request by request, up to its limits."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from itertools import islice

from uncork_dispatcher.learning.measures import BatchSize
from uncork_dispatcher.requests.lengths import Lengths, padded_count
from uncork_dispatcher.requests.queue import Entry, RequestQueue


class Fill:
    """A batch that is being filled. It takes at least one request, and no more than its limits allow.

    Args:
        size: the largest size by the current measure.
        measure: the place of the current measure in :class:`BatchSize`.
        most_rows: the most rows.
        most_requests: the most requests.
        size_bytes: the most bytes of bodies.
        lengths: the batch takes only requests whose longest row is in this interval, if given.
        allowed_batch_sizes: the numbers of rows to which the model pads its batches.

    Attributes:
        entries: the requests taken so far.
        count: their number of rows.
        body_bytes: the total size of their bodies.
    """

    count = 0.0
    body_bytes = 0
    _rows = 0.0
    _padded = 0.0
    _longest = 0.0
    _padding = 0.0
    _alone = 0.0
    """The padded sizes of the requests, each alone."""

    def __init__(
        self,
        *,
        size: float,
        measure: int = 0,
        most_rows: float = math.inf,
        most_requests: float = math.inf,
        size_bytes: float = math.inf,
        lengths: Lengths | None = None,
        allowed_batch_sizes: Sequence[int] = (),
    ) -> None:
        self.entries: list[Entry] = []
        self._most = size
        self._most_rows = most_rows
        self._most_requests = most_requests
        self._measure = measure
        self._most_bytes = size_bytes
        self._lengths = lengths
        self._allowed_sizes = allowed_batch_sizes

    @property
    def taken(self) -> BatchSize:
        return BatchSize(self._rows, self._padded, self.body_bytes)

    def take(self, queue: RequestQueue) -> list[Entry]:
        """Fill the batch with the next requests of a queue, remove them from it, and return them."""
        begin = len(self.entries)
        uniform = None if begin else queue.uniform()
        if uniform is not None and self._take_all(uniform, rows=queue.rows):
            queue.clear()
            return self.entries
        self.take_from(queue.turns())
        taken = self.entries[begin:]
        for entry in taken:
            queue.take(entry)
        return taken

    def admit_riders(self, size: float, most_rows: float, *, same_length: bool) -> None:
        """Let the batch take requests of another queue, up to other limits.

        With ``same_length``, only requests no longer than the longest in the batch.
        """
        self._most, self._most_rows = size, most_rows
        if same_length:
            self._lengths = Lengths(0.0 if self._lengths is None else self._lengths.shortest, self._longest)

    def take_from(self, turns: Iterator[Entry]) -> None:
        """Take requests in the order of ``turns`` until one does not fit; skip requests of other lengths."""
        shortest, longest = 0.0, math.inf
        if self._lengths is not None:
            shortest, longest = self._lengths
            # Of a queue with other lengths, a batch looks at the most urgent requests only.
            turns = islice(turns, 256)
        for entry in turns:
            if shortest <= entry.length <= longest and not self._take(entry):
                break

    def _take_all(self, queued: Collection[Entry], *, rows: float) -> bool:
        """Take all of ``queued``, requests of one length with about ``rows`` rows; return False if too large.

        This costs a third of taking each request in turn.
        """
        if rows > self._most or self._measure or self._lengths or self._allowed_sizes:
            return False
        if len(queued) > self._most_requests or len(queued) > self._most_rows:
            return False  # before the sums, which a long queue would repeat for each batch
        entries = list(queued)
        rows = count = padded = 0.0
        size_bytes = 0
        for entry in entries:
            rows += entry.rows
            count += entry.count
            padded += entry.padded
            size_bytes += entry.size_bytes
        if rows > self._most or count > self._most_rows or size_bytes > self._most_bytes:
            return False
        self.entries = entries
        self._rows, self.count, self.body_bytes = rows, count, size_bytes
        self._padded = self._alone = padded
        self._longest = entries[0].length
        return True

    def _take(self, entry: Entry) -> bool:
        """Add a request to the batch; return False if it does not fit."""
        if len(self.entries) >= self._most_requests:
            return False
        longest, padding = self._longest, self._padding
        if entry.length > longest:
            longest = entry.length
            padding += (longest - self._longest) * self.count
        else:
            padding += (longest - entry.length) * entry.count
        count, alone = self.count + entry.count, self._alone + entry.padded
        padded = alone + padding
        if self._allowed_sizes:
            padded *= padded_count(count, self._allowed_sizes) / count
        rows, size_bytes = self._rows + entry.rows, self.body_bytes + entry.size_bytes
        size = (rows, padded, size_bytes)[self._measure] if self._measure else rows
        if self.entries and (size > self._most or count > self._most_rows or size_bytes > self._most_bytes):
            return False
        self.entries.append(entry)
        self._rows, self._padded, self.body_bytes = rows, padded, size_bytes
        self.count, self._longest, self._alone, self._padding = count, longest, alone, padding
        return True
