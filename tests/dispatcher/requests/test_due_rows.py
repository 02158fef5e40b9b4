"""The rows of a queue that are due later than a moment."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.dispatcher.scheduling.test_many_keys import calls
from uncork_dispatcher import CORE_IS_COMPILED
from uncork_dispatcher.requests.due_rows import DueRows

TIMES = st.floats(0, 20) | st.floats(0, 1e5)
REQUESTS = st.lists(st.tuples(TIMES, st.integers(1, 5), st.booleans()), max_size=40)


@given(requests=REQUESTS, deadline=TIMES, goal_s=st.sampled_from([0.01, 1.0, 10.0, 86_400.0]))
def test_all_that_is_due_a_step_later_counts(
    requests: list[tuple[float, int, bool]], deadline: float, goal_s: float
) -> None:
    """And nothing that is due earlier, or that was removed."""
    due = DueRows(goal_s)
    for at, rows, _ in requests:
        due.add(at, rows)
    for at, rows, leaves in requests:
        if leaves:
            due.remove(at, rows)
    stay = [(at, rows) for at, rows, leaves in requests if not leaves]

    found, number = due.after(deadline)

    step_s = min(goal_s, 1.0) / 64 * (1 + 1e-6)
    later = [rows for at, rows in stay if at > deadline]
    surely = [rows for at, rows in stay if at > deadline + step_s]
    assert sum(surely) <= found <= sum(later)
    assert len(surely) <= number <= len(later)


@pytest.mark.skipif(CORE_IS_COMPILED, reason="calls in compiled code are not seen")
def test_the_work_does_not_grow_with_the_goal() -> None:
    """Many requests are due in steps of their own; with a day, there are four levels of 64 steps."""
    due = DueRows(86_400.0)
    for number in range(20_000):
        due.add(4.3 * number, 1)

    assert calls(lambda: due.after(0.5)) < 300
    assert due.after(0.5) == (19_999, 19_999)
