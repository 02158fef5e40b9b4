"""The policy that does not batch."""

import pytest

from tests.dispatcher.policies.views import view
from uncork_dispatcher.policies.base import BatchDone, Release
from uncork_dispatcher.policies.none import NonePolicy


@pytest.mark.parametrize("rows", [1, 7])
def test_one_request_goes_at_once(rows: int) -> None:
    """However many are queued and however busy the others are, also after a batch was seen."""
    policy = NonePolicy()
    policy.observe(BatchDone(now=9.0, rows=1, requests=1, queued_s=5.0, seconds=1.0))

    assert policy.decide(
        view(rows=rows, requests=rows, busy_until=(50.0,), new_client_rate=100.0)
    ) == Release(1, "idle")
