"""The batch sizes of a warm-up."""

from collections.abc import Sequence

from uncork_workers.process.batches.size_limit import CLOSE

# The first run of a size may include lazy initialization or compilation, and any run may be disturbed, so the
# faster of two counts.
RUNS_PER_SIZE = 2


def doubling(most: int) -> list[int]:
    """Return the powers of two below ``most``, and ``most``."""
    return [*(2**power for power in range(most.bit_length()) if 2**power < most), most]


class WarmUpSizes:
    """The sizes to run, in rows: the given ones and, after one that runs out of memory, sizes between it and
    the last that worked, until these are close.

    Args:
        sizes: in rising order.
        halves: False to run no other size.

    Attributes:
        ran: the sizes that have worked.
        too_large: the smallest size that ran out of memory; 0: none has.
    """

    def __init__(self, sizes: Sequence[int], *, halves: bool = True) -> None:
        self.ran: list[int] = []
        self.too_large = 0
        self._sizes = sizes
        self._halves = halves
        self._took_s = 0.0

    def next(self, left_s: float) -> int | None:
        """Return the next size; None if there is none, or it may not end within ``left_s``.

        The smallest size always runs.
        """
        size = self._next()
        if size is None or not self.ran:
            return size
        # An upper bound: time grows at most in proportion to the rows.
        expected_s = RUNS_PER_SIZE * self._took_s * size / self.ran[-1]
        return size if expected_s <= left_s else None

    def worked(self, size: int, seconds: float) -> None:
        """Note that a size has worked; its faster run took ``seconds``."""
        self.ran.append(size)
        self._took_s = seconds

    def _next(self) -> int | None:
        last = self.ran[-1] if self.ran else 0
        if not self.too_large:
            return next((size for size in self._sizes if size > last), None)
        middle = (last + self.too_large) // 2
        is_close = last >= CLOSE * self.too_large or middle == last
        return None if is_close or not self._halves else middle
