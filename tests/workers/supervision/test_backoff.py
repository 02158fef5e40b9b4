"""Delays between retries."""

from hypothesis import given
from hypothesis import strategies as st

from uncork_workers.supervision.launcher import backoff_s


def delay_s(failures: int) -> float:
    return backoff_s(failures, first_s=0.1, longest_s=10.0)


@given(st.integers(1, 10**9))
def test_waits_double_up_to_the_longest(failures: int) -> None:
    """Within the jitter of 25 %."""
    mean_s = min(10.0, 0.1 * 2 ** min(failures - 1, 20))
    assert 0.75 * mean_s <= delay_s(failures) <= 1.25 * mean_s


def test_workers_that_fail_together_do_not_all_try_together() -> None:
    assert len({delay_s(3) for _ in range(10)}) > 1
