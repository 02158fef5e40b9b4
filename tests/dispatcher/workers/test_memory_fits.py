"""What fits into the memory of workers."""

import math

from uncork_dispatcher.workers.memory_fits import MemoryFits


def test_each_worker_has_its_own_size_for_each_api() -> None:
    fits = MemoryFits()
    fits.limit(1, "a", 20.0)
    fits.limit(2, "a", 8.0)

    assert (fits.of(1, "a"), fits.of(2, "a"), fits.of(3, "a"), fits.of(1, "b")) == (20, 8, math.inf, math.inf)
    assert (fits.least("a"), fits.least("b")) == (8, math.inf)
    assert "a" in fits
    assert "b" not in fits


def test_a_limit_changes_and_ends() -> None:
    fits = MemoryFits()
    for size in (20.0, 5.0, math.inf, math.inf):
        fits.limit(1, "a", size)
        assert fits.of(1, "a") == fits.least("a") == size
    assert "a" not in fits
