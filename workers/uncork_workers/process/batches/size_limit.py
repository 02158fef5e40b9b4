"""The largest size of a call that fits into memory, learned from calls that ran out of it and at warm-up."""

from __future__ import annotations

import math
from collections.abc import Sequence

# The search for the largest size that fits ends when it is this share of the smallest that does not.
CLOSE = 0.85
# Two sizes within this factor count as the same.
_ALIKE = 1.1
# A limit grows by this factor after so many calls of about its size: the first time, after a growth that
# worked, and at most. After a growth that failed, it waits for twice as many calls as before.
_GROWTH = 1.25
_FIRST_WAIT, _SHORT_WAIT, _LONGEST_WAIT = 50, 10, 3200
# The first run of a size may include lazy initialization or compilation, and any run may be disturbed, so the
# faster of two counts.
RUNS_PER_SIZE = 2


class SizeLimit:
    """What a handler call may have: rows, or cost.

    A call that fails for lack of memory is a suspicion: one of its rows may have been large. Its size is too
    large if another call of about that size fails before one has worked.

    Attributes:
        most: the size that calls may have now; infinity until one is too large.
        pads: whether that is the size of padded rows; None before the first batch.
    """

    def __init__(self, most: float = math.inf) -> None:
        self.most = most
        self.pads: bool | None = None
        self._fits = 0.0 if most == math.inf else most
        """The largest size that has worked since a smaller one was too large."""
        self._fails = math.inf
        """The smallest size that is too large."""
        self._suspects: tuple[float, ...] = ()
        self._worked = 0
        """Calls of about the limit's size since it has changed."""
        self._wait = _FIRST_WAIT
        self._grows = False
        """Whether the limit has grown, and no call of its size has worked yet."""

    def become(self, other: SizeLimit) -> None:
        """Take over what a copy has learned."""
        vars(self).update(vars(other))

    def count_in(self, *, pads: bool, known: float | None) -> None:
        """Begin to count padded rows, or to count them no more.

        Forget a limit in the other unit; if there was none, take over ``known``, if any.
        """
        if self.pads is not None:
            self.become(SizeLimit())
        elif known is not None and self.most == math.inf:
            self.become(SizeLimit(known))
        self.pads = pads

    @property
    def learns(self) -> bool:
        """True if a successful call can change the limit."""
        return self.most < math.inf or bool(self._suspects)

    def worked(self, size: float) -> None:
        """Note a call that had enough memory."""
        if self._suspects:
            self._suspects = tuple([suspect for suspect in self._suspects if suspect > _ALIKE * size])
        if self.most == math.inf:
            return
        if size >= self._fails:
            self._fails = math.inf
        is_full = size * _ALIKE >= self.most
        if size > self._fits:
            if self._grows and is_full:
                self._grows, self._wait = False, _SHORT_WAIT
            self._fits = size
            self._aim()
        self._worked += is_full
        if self._worked >= self._wait:
            self._worked, self._grows = 0, True
            self._fails = math.inf
            self.most = math.ceil(self.most * _GROWTH)

    def failed(self, size: float, *, is_sure: bool = False) -> None:
        """Note a call that ran out of memory; ``is_sure`` if no single row can be the reason."""
        if self.most < math.inf and size > self._fits > 0:
            # More than has ever fitted since: the size must be the reason.
            is_sure = True
            if self._grows:
                self._grows = False
                self._wait = min(2 * max(self._wait, _FIRST_WAIT // 2), _LONGEST_WAIT)
            self._worked = 0
        if not is_sure and not any(suspect <= _ALIKE * size for suspect in self._suspects):
            self._suspects += (size,)
            return
        self._suspects = ()
        self._fails = min(self._fails, size)
        if self._fits >= self._fails:
            self._fits = 0.0
        self._aim()

    def blame_row(self) -> None:
        """Note that a row has failed alone: it explains the calls that failed with it."""
        self._suspects = ()

    def _aim(self) -> None:
        """Set the limit to what fits if that is close to what does not, else to half way between them."""
        if self._fails == math.inf:
            return
        if self._fits >= CLOSE * self._fails or self._fails - self._fits <= 1:
            self.most = max(1, self._fits)
        else:
            self.most = max(1, (self._fits + self._fails) // 2)


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
