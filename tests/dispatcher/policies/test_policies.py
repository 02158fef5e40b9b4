"""Policies by name, and the one that waits for size or time."""

import math
import re

import pytest

from tests.dispatcher.policies.views import view
from uncork_dispatcher.policies import POLICIES, base, make_policy
from uncork_dispatcher.policies.aimd import AimdPolicy
from uncork_dispatcher.policies.base import Hold, Release
from uncork_dispatcher.policies.cork import CorkPolicy
from uncork_dispatcher.policies.cork_classic import CorkClassicPolicy
from uncork_dispatcher.policies.fixed import FixedPolicy
from uncork_dispatcher.policies.none import NonePolicy


@pytest.mark.parametrize(
    ("name", "kind", "limit_rows"),
    [
        ("cork", CorkPolicy, 32),
        ("cork-classic", CorkClassicPolicy, 32),
        ("fixed", FixedPolicy, 32),
        ("fixed:25", FixedPolicy, 32),
        ("fixed:25:8", FixedPolicy, 8),
        ("fixed:25:32", FixedPolicy, 32),
        ("fixed:25:33", FixedPolicy, 32),
        ("fixed:0.5:08", FixedPolicy, 8),
        ("aimd", AimdPolicy, 1),
        ("none", NonePolicy, 1),
    ],
)
def test_a_name_gives_its_policy(name: str, kind: type, limit_rows: int) -> None:
    """With the lower of the limits asked for; no batching means one row, and aimd begins with one."""
    policy = make_policy(name, limit_rows=limit_rows)

    assert type(policy) is kind
    assert policy.limit_rows == limit_rows


@pytest.mark.parametrize(
    ("name", "until"),
    [("fixed", 0.01), ("fixed:25", 0.025), ("fixed:0.5", 0.0005), ("fixed:25:8", 0.025)],
)
def test_the_wait_stands_behind_the_colon_in_milliseconds(name: str, until: float) -> None:
    """10 if none is given."""
    decision = make_policy(name, limit_rows=32).decide(view(now=0.0, oldest=0.0))

    assert isinstance(decision, Hold)
    assert decision.until == pytest.approx(until)


@pytest.mark.parametrize(
    "name",
    [
        "",
        "CORK",
        "fixed:",
        "fixed:-1",
        "fixed:1e3",
        "fixed:nan",
        "fixed:5 ",
        "fixed:\u0665",
        "fixed::8",
        "fixed:5:",
        "fixed:5:0",
        "fixed:5:-1",
        "fixed:5:1000000000",
        "fixed:5:" + "9" * 5000,
        "fixed:1000000000",
        "fixed:" + "9" * 400,
        "fixed:5:1.5",
        "fixed:5:8:8",
        "cork:5",
        "aimd:5",
        "fixed5",
    ],
)
def test_an_unknown_name_is_refused(name: str) -> None:
    """With the policies that there are, or the arguments of the one that is named."""
    kind = name.partition(":")[0]
    says = {
        "fixed": f"wrong arguments of policy {name!r}; fixed:MS or fixed:MS:ROWS sets the longest wait in ms",
        "cork": "wrong arguments of policy 'cork:5'; cork takes none",
        "aimd": "wrong arguments of policy 'aimd:5'; aimd takes none",
    }.get(kind, f"unknown policy {name!r}; available: {', '.join(POLICIES)}; fixed:MS or fixed:MS:ROWS")
    with pytest.raises(ValueError, match=re.escape(says)):
        make_policy(name, limit_rows=1)


def test_a_new_policy_is_one_class(monkeypatch: pytest.MonkeyPatch) -> None:
    """Registered under its name, with no arguments unless it takes some."""
    monkeypatch.setitem(base.REGISTERED, "greedy", base.Policy)  # removed after the test

    class Greedy(base.Policy):
        def decide(self, view: base.View) -> base.Release:
            return base.Release(self.limit_rows, "idle")

    base.register("greedy", Greedy)
    assert isinstance(make_policy("greedy", limit_rows=3), Greedy)
    with pytest.raises(ValueError, match=r"^wrong arguments of policy 'greedy:1'; greedy takes none$"):
        make_policy("greedy:1", limit_rows=3)


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
    policy.observe(now=9.0, rows=1, requests=1, queued_s=5.0, seconds=1.0)

    assert policy.decide(view(now=10.125, oldest=10.0, **changes)) == Hold(10.25, "window", math.inf)


def test_when_the_wait_is_over_what_there_is_goes(policy: FixedPolicy) -> None:
    assert policy.decide(view(now=10.25, oldest=10.0)) == Release(32, "deadline")
    assert policy.decide(view(now=11.0, oldest=10.0)) == Release(32, "deadline")
