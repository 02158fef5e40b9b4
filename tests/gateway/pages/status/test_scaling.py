"""Why there are as many workers as there are, in words."""

from typing import get_args

import pytest

from uncork_dispatcher import Decision, ScalingReason, ScalingState
from uncork_gateway.pages.status.slots import describe_scaling

CASES: dict[ScalingState, tuple[Decision, str]] = {
    "enough": (
        Decision(5, 5, ScalingReason("enough", "predict", "goal")),
        "The traffic needs 5 workers, because of the goal of predict.",
    ),
    "confirming": (
        Decision(7, 5, ScalingReason("confirming", "predict", "throughput")),
        "The traffic needs 7 workers, because of the arrivals of predict. 2 more start if that is still so "
        "in 5 s.",
    ),
    "up": (
        Decision(7, 7, ScalingReason("up", "predict", "goal_out_of_reach")),
        "The traffic needs 7 workers for the arrivals of predict, whose goal no number of workers meets. "
        "7 workers are ready or starting.",
    ),
    "at_most": (
        Decision(30, 16, ScalingReason("at_most", "predict", "goal")),
        "The traffic needs 30 workers, because of the goal of predict, but --workers allows at most 16.",
    ),
    "down": (
        Decision(2, 4, ScalingReason("down", "predict", "goal")),
        "The traffic needs 2 workers, because of the goal of predict. One more worker stops; 4 stay.",
    ),
    "waiting": (
        Decision(1, 3, ScalingReason("waiting", None, None, 25.0)),
        "Without traffic, 1 worker is enough. One of 3 stops in 25 s unless the traffic rises.",
    ),
    "recent_peak": (
        Decision(3, 5, ScalingReason("recent_peak", "predict", "goal")),
        "The traffic needs 3 workers, because of the goal of predict now. A peak in the last 5 minutes "
        "needed more, so no worker stops.",
    ),
    "starting": (
        Decision(3, 5, ScalingReason("starting", "predict", "goal")),
        "The traffic needs 3 workers, because of the goal of predict. No worker stops while others start.",
    ),
    "at_least": (
        Decision(1, 2, ScalingReason("at_least", "predict", "goal")),
        "The traffic needs 1 worker, because of the goal of predict, but --workers keeps at least 2.",
    ),
    "asleep": (
        Decision(0, 0, ScalingReason("asleep")),
        "No worker runs, because no request has arrived for a while. The next one starts one.",
    ),
    "unknown": (
        Decision(2, 2, ScalingReason("unknown", None, None, None, ("a", "b"))),
        "Too few batches of a and b have run to know how many workers the traffic needs.",
    ),
}


@pytest.mark.parametrize("state", get_args(ScalingState))
def test_every_state_has_a_sentence(state: ScalingState) -> None:
    decision, text = CASES[state]
    described = describe_scaling(decision, least=2, most=16, startup_s=None)

    assert described.sentence == text
    assert (described.wanted, described.target) == decision[:2]
    assert (described.least, described.most, described.state) == (2, 16, state)
    assert described.start_s is None


def test_the_time_of_a_start_is_said_while_workers_start() -> None:
    described = [
        describe_scaling(CASES[state][0], least=2, most=16, startup_s=12.34)
        for state in get_args(ScalingState)
    ]

    assert all(one.start_s == 12.34 for one in described)
    assert [one.state for one in described if "a start takes about 12 s." in one.sentence] == ["up", "asleep"]
