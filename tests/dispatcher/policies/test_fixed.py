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


def test_an_idle_worker_does_not_make_it_hurry(policy: FixedPolicy) -> None:
    """The oldest request waits its time, whatever the goal and the workers say."""
    assert policy.decide(view(now=10.125, oldest=10.0, deadline=10.1)) == Hold(10.25, "window", math.inf)
    assert policy.decide(view(now=10.125, oldest=10.0, busy_until=(11.0,))) == Hold(10.25, "window", math.inf)


def test_the_wait_counts_from_the_oldest(policy: FixedPolicy) -> None:
    seen = view(now=10.125, oldest=10.0, newest=10.125, rows=2, requests=2)

    assert policy.decide(seen) == Hold(10.25, "window", math.inf)


def test_when_the_wait_is_over_what_there_is_goes(policy: FixedPolicy) -> None:
    assert policy.decide(view(now=10.25, oldest=10.0)) == Release(32, "deadline")
    assert policy.decide(view(now=11.0, oldest=10.0)) == Release(32, "deadline")


def test_batches_teach_it_nothing(policy: FixedPolicy) -> None:
    policy.observe(BatchDone(now=9.0, rows=1, requests=1, queued_s=5.0, seconds=1.0))

    assert policy.decide(view(now=10.125, oldest=10.0)) == Hold(10.25, "window", math.inf)
