"""The rows of a queue that are due later than a moment."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from uncork_dispatcher.requests.due_rows import DueRows

REQUESTS = st.lists(st.tuples(st.floats(0, 20), st.integers(1, 5), st.booleans()), max_size=40)


@given(requests=REQUESTS, deadline=st.floats(0, 20), goal_s=st.sampled_from([0.01, 1.0, 10.0]))
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

    step_s = goal_s / 64 * (1 + 1e-9)
    later = [rows for at, rows in stay if at > deadline]
    surely = [rows for at, rows in stay if at > deadline + step_s]
    assert sum(surely) <= found <= sum(later)
    assert len(surely) <= number <= len(later)
