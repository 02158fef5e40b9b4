"""The rule of BentoML: hold while ``n * (wn + 1 ms + a) <= 0.95 * W``."""

from __future__ import annotations

import pytest

from tests.dispatcher.policies.views import view
from uncork_dispatcher.policies.base import Hold, Release
from uncork_dispatcher.policies.cork_classic import CorkClassicPolicy


def taught(*, queued_s: float = 0.1, at: float = 10.0) -> CorkClassicPolicy:
    """A policy that saw one batch of 1 request, 50 ms, whose oldest was queued for ``queued_s``."""
    policy = CorkClassicPolicy(limit_rows=32)
    policy.observe(now=at, rows=1, requests=1, queued_s=queued_s, seconds=0.05)
    return policy


def done(policy: CorkClassicPolicy, now: float, requests: int, *, queued_s: float = 0.1) -> None:
    """End a batch of a model of 20 ms and 5 ms per request; it has 3 rows for each request."""
    seconds = 0.02 + 0.005 * requests
    policy.observe(now=now, rows=3 * requests, requests=requests, queued_s=queued_s, seconds=seconds)


def until(policy: CorkClassicPolicy, **changes: object) -> float:
    """Until when it holds."""
    decision = policy.decide(view(**changes))
    assert isinstance(decision, Hold)
    return decision.until


def test_before_the_first_batch_nothing_is_held() -> None:
    assert CorkClassicPolicy(limit_rows=32).decide(view()) == Release(32, "not_worth_waiting")


def test_one_batch_gives_half_its_time_to_the_slope() -> None:
    """The least-norm line through (1 request, 50 ms): a = 25 ms, so 95 - 1 - 25 = 69 ms from the newest."""
    assert until(taught(), newest=10.0) == pytest.approx(10.069)
    assert until(taught(), now=10.068, newest=10.0) == pytest.approx(10.069)


def test_the_more_wait_the_shorter() -> None:
    """Two requests share the 95 ms; four have less than nothing left. Rows do not count."""
    assert until(taught(), requests=2, rows=50) == pytest.approx(10.0 + 0.0475 - 0.026)
    assert taught().decide(view(requests=4, rows=4)) == Release(32, "not_worth_waiting")


def test_the_slope_is_fitted_over_requests() -> None:
    """5 ms per request, from batches of several sizes; W is the mean time that the oldest were queued."""
    policy = CorkClassicPolicy(limit_rows=32)
    done(policy, 0.0, 1, queued_s=0.0)
    done(policy, 1.0, 4, queued_s=0.1)
    done(policy, 5.0, 8, queued_s=0.2)

    assert until(policy, newest=10.0) == pytest.approx(10.0 + 0.95 * 0.1 - 0.001 - 0.005)


def test_it_is_fitted_every_five_seconds() -> None:
    policy = taught(queued_s=0.1, at=10.0)
    done(policy, 14.99, 1, queued_s=0.3)
    assert until(policy, newest=10.0) == pytest.approx(10.069)

    done(policy, 15.0, 4, queued_s=0.5)
    assert until(policy, newest=10.0) > 10.2


def test_it_forgets_all_but_fifty_batches() -> None:
    policy = taught(queued_s=1000.0, at=10.0)
    for i in range(49):
        done(policy, 15.0 + i, 1 + i % 4, queued_s=0.1)
    done(policy, 100.0, 2, queued_s=0.1)

    assert until(policy, newest=10.0) == pytest.approx(10.0 + 0.095 - 0.001 - 0.005)
