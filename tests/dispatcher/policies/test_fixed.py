"""Size or time, whichever comes first."""

import math

import pytest

from tests.dispatcher.policies.views import view
from uncork_dispatcher.policies.base import BatchDone, Hold, Release
from uncork_dispatcher.policies.fixed import FixedPolicy


@pytest.fixture
def policy() -> FixedPolicy:
    """32 rows or a quarter of a second."""
    return FixedPolicy(limit_rows=32, wait_s=0.25)


def test_a_full_batch_goes(policy: FixedPolicy) -> None:
    assert policy.decide(view(full=True)) == Release(32, "full")


@pytest.mark.parametrize(
    "changes", [{"deadline": 10.1}, {"busy_until": (11.0,)}, {"newest": 10.125, "rows": 2, "requests": 2}]
)
def test_the_oldest_request_waits_its_time(policy: FixedPolicy, changes: dict[str, object]) -> None:
    """Whatever the goal and the workers say, and whatever comes later."""
    policy.observe(BatchDone(now=9.0, rows=1, requests=1, queued_s=5.0, seconds=1.0))

    assert policy.decide(view(now=10.125, oldest=10.0, **changes)) == Hold(10.25, "window", math.inf)


def test_when_the_wait_is_over_what_there_is_goes(policy: FixedPolicy) -> None:
    assert policy.decide(view(now=10.25, oldest=10.0)) == Release(32, "deadline")
    assert policy.decide(view(now=11.0, oldest=10.0)) == Release(32, "deadline")
