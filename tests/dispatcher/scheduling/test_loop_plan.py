"""Whether the clients of a closed loop take turns in two groups."""

from __future__ import annotations

import math

import pytest

from tests.dispatcher.policies.views import view
from uncork_dispatcher.learning.estimator import Estimate
from uncork_dispatcher.learning.returns import Returns
from uncork_dispatcher.loop_plan import ClosedLoop, group_rows
from uncork_dispatcher.policies.base import Hold, Release
from uncork_dispatcher.policies.cork import CorkPolicy

ROWS = 40.0
LINE = Estimate(intercept_s=0.010, slope_s=0.001, spread=0.0, earned_rows=100.0)
"""40 rows take 50 ms, half of them 30 ms."""


def away(*groups: tuple[int, float]) -> Returns:
    """Groups of so many clients of one row were back after so many seconds."""
    returns = Returns()
    for number, (clients, seconds) in enumerate(groups):
        now = number * 3.0
        returns.answered([(client, 1.0) for client in range(clients)], now=now)
        for client in range(clients):
            returns.arrived(client, now=now + seconds)
    return returns


def loop(returns: Returns, **changes: object) -> ClosedLoop:
    """One worker and clients with 40 rows altogether, but for ``changes``."""
    plain = ClosedLoop(
        rows=ROWS,
        mean_rows=1.0,
        workers=1,
        estimate=LINE,
        alone=changes.get("estimate", LINE),  # type: ignore[arg-type]
        transport_s=0.0,
        sends_ahead=True,
        returns=returns,
    )
    return plain._replace(**changes)  # type: ignore[arg-type]


def turns(returns: Returns, *, limit_rows: float = 100, take_turns: bool = False, **changes: object) -> float:
    return group_rows(loop(returns, **changes), limit_rows=limit_rows, take_turns=take_turns)


TOGETHER = math.inf
CASES: dict[str, tuple[float, float]] = {
    # Together, 50 ms of work and 20 ms without; in turns, 60 ms of work.
    "away for longer than another batch costs": (turns(away((40, 0.020))), 20),
    "the gain must be a few percent": (turns(away((40, 0.013))), TOGETHER),
    # Otherwise groups would form and dissolve.
    "turns go on while they gain a little": (turns(away((40, 0.013)), take_turns=True), 20),
    "turns end when they gain nothing": (turns(away((40, 0.011)), take_turns=True), TOGETHER),
    # A batch ahead is there when its worker becomes idle; together, none can be sent ahead.
    "with the way to the worker": (turns(away((40, 0.012)), transport_s=0.010), 20),
    "no batch ahead": (turns(away((40, 0.012)), transport_s=0.010, sends_ahead=False), TOGETHER),
    # Batches that are prepared while others run: together 50 + 10 + 5 ms, in turns 60 ms.
    "with preparation": (turns(away((40, 0.005)), alone=LINE._replace(intercept_s=0.020)), 20),
    "no preparation ahead": (
        turns(away((40, 0.005)), alone=LINE._replace(intercept_s=0.020), sends_ahead=False),
        TOGETHER,
    ),
    # Together 50 + 10 + 90 ms, in turns 30 + 10 + 90 ms; with a way of 300 ms, 440 and 420 ms.
    "back late, short way": (turns(away((40, 0.090)), transport_s=0.010), 20),
    "back late, long way": (turns(away((40, 0.090)), transport_s=0.300), TOGETHER),
    # Half of them are away for as long as all: together 50 + 90 ms, in turns 30 + 90 ms.
    "half are back in time": (turns(away((40, 0.090))), 20),
    "half are not back in time": (turns(away((40, 0.400))), TOGETHER),
    "half are back sooner than all": (turns(away((40, 0.400), (20, 0.200))), 20),
    "as many as fit into a batch": (turns(away((40, 0.020)), limit_rows=40), 20),
    # They take turns anyway.
    "more than fit into a batch": (turns(away((40, 0.020)), limit_rows=39), TOGETHER),
    # Four requests at least are worth a batch, however many rows they have.
    "two groups of four": (turns(away((8, 0.020)), rows=8), 4),
    "fewer than two groups of four": (turns(away((7, 0.020)), rows=7), TOGETHER),
    "two groups of four large requests": (turns(away((40, 0.020)), mean_rows=5.0), 20),
    "fewer large requests": (turns(away((40, 0.020)), mean_rows=6.0), TOGETHER),
    "nothing known of returns": (turns(away(), transport_s=0.1), TOGETHER),
    "no rows": (turns(away(), rows=0.0), TOGETHER),
}


@pytest.mark.parametrize("case", CASES)
def test_clients_take_turns_where_that_takes_less_time(case: str) -> None:
    found, expected = CASES[case]

    assert found == expected


@pytest.mark.parametrize(("spread", "workers", "expected"), [(0.9, 2, 20), (1.1, 2, math.inf), (1.1, 1, 20)])
def test_batches_that_end_at_uncertain_times_are_not_sent_ahead_of_others(
    spread: float, workers: int, expected: float
) -> None:
    """With several workers: half of the clients take 30 ms, and 3 times the transport is 30 ms."""
    returns, line = away((40, 0.012)), LINE._replace(spread=spread)

    rows = turns(returns, rows=40 * workers, workers=workers, estimate=line, transport_s=0.010)
    assert rows == expected


@pytest.mark.parametrize(
    ("rows", "mean_rows", "workers", "expected"),
    [
        (41, 1, 1, 20),
        (120, 1, 3, 20),
        (126, 1, 3, 21),
        (42, 4, 1, 20),
        (54, 6, 1, 24),
        (40 * (1 - 1e-12), 0.4, 1, 20),
    ],
)
def test_each_worker_has_two_groups_of_whole_requests(
    rows: float, mean_rows: float, workers: int, expected: float
) -> None:
    """The one that is left over goes with the next group: no group waits for a client of the other."""
    complete = turns(away((40, 0.020)), rows=rows, mean_rows=mean_rows, workers=workers)

    assert complete == pytest.approx(expected)


def policy(*, takes_turns: bool = True) -> CorkPolicy:
    made = CorkPolicy(limit_rows=100)
    made.plan(loop(away((40, 0.020 if takes_turns else 0.001))))
    return made


def test_a_group_is_released_and_no_more() -> None:
    assert policy().decide(view(rows=30, requests=30)) == Release(20, "not_worth_waiting")


def test_a_plan_ends_when_clients_should_be_together_or_are_not_alone() -> None:
    made = policy()
    assert made.complete_rows == 20
    made.plan(loop(away((40, 0.001))))
    assert made.complete_rows == math.inf

    made = policy()
    made.plan(None)
    assert made.complete_rows == math.inf


def returning(*, missing: int, usual_s: float) -> Returns:
    """Clients that usually come back after ``usual_s`` were answered now, at 10 s."""
    returns = Returns()
    for number in range(50):
        returns.answered([((number, client), 1.0) for client in range(4)], now=0.0)
        for client in range(4):
            returns.arrived((number, client), now=usual_s)
    returns.answered([(client, 1.0) for client in range(missing)], now=10.0)
    return returns


def test_a_hold_ends_when_the_group_is_complete() -> None:
    """Nobody else has to come back for that."""
    back = returning(missing=30, usual_s=0.005)
    hold = policy().decide(view(rows=10, requests=10, estimate=LINE, returns=back))
    together = policy(takes_turns=False).decide(view(rows=10, requests=10, estimate=LINE, returns=back))

    assert isinstance(hold, Hold)
    assert isinstance(together, Hold)
    assert hold.rows == 20 < together.rows


def test_groups_that_take_turns_are_not_merged() -> None:
    """The others would be back before another batch pays, so without turns they are waited for."""
    line = LINE._replace(intercept_s=0.030, slope_s=0.0001)
    back = returning(missing=19, usual_s=0.025)
    seen = view(rows=19, requests=19, estimate=line, returns=back)

    assert isinstance(policy(takes_turns=False).decide(seen), Hold)
    assert policy().decide(seen) == Release(100, "idle")
