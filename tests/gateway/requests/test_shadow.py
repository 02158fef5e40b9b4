"""Copies of requests for another version."""

from __future__ import annotations

import asyncio
import math
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.gateway.client import JSON, Client
from tests.gateway.running import turns
from tests.gateway.stage import RULES, Stage
from uncork_dispatcher import ApiRules
from uncork_gateway.dialects.base import HandlerResult
from uncork_gateway.requests.classes import Classes
from uncork_gateway.requests.shadow import Shadow, ShadowTally, same_answer, same_value
from uncork_workers.wire.forms import ListForm, TensorForm


class Pair:
    """A version that answers, and one that gets copies."""

    def __init__(self, rules: ApiRules | None = None) -> None:
        self.real = Stage()
        self.copy = Stage(rules=rules) if rules is not None else Stage()
        self.tally = ShadowTally()
        self.real.route.shadows = [Shadow("echo", self.copy.dispatcher, self.tally)]

    async def ask(self, body: bytes = b"[1]") -> int:
        """Return the status of a request, after its copy has ended."""
        reply = await self.real.reply(body)
        await turns()
        return reply.status

    @property
    def outcomes(self) -> dict[Any, int]:
        return dict(self.tally.total())


async def test_a_copy_runs_beside_the_request() -> None:
    pair = Pair()
    assert await pair.ask() == 200
    assert pair.real.runner.batches == pair.copy.runner.batches == [[b"[1]"]]
    assert pair.outcomes == {"agreed": 1}
    assert pair.tally.duration["echo"].count == 1

    pair.copy.runner.reply = lambda body: HandlerResult(200, b"2")
    assert await pair.ask() == 200
    assert pair.outcomes == {"agreed": 1, "differed": 1}


async def test_a_copy_that_fails_concerns_nobody() -> None:
    pair = Pair()
    pair.copy.runner.error = RuntimeError("boom")
    assert await pair.ask() == 200
    pair.copy.runner.error = None
    pair.copy.runner.reply = lambda body: HandlerResult(500, b"error")
    assert await pair.ask() == 200
    assert pair.outcomes == {"failed": 2}


async def test_a_copy_that_waits_delays_nobody() -> None:
    """Those for which there is no room are counted."""
    pair = Pair(ApiRules(name="echo", policy="fixed:0", max_queue_rows=1))
    pair.copy.runner.gate.clear()
    assert [await pair.ask() for _ in range(4)] == [200] * 4
    assert pair.outcomes == {"shed": 2}
    pair.copy.runner.gate.set()
    await turns()
    assert pair.outcomes == {"shed": 2, "agreed": 2}


async def test_a_request_that_is_refused_at_once_has_no_copy() -> None:
    """Its copy would run for nothing, and be in no count."""
    pair = Pair()
    pair.real = Stage(rules=replace(RULES, max_queue_rows=1))
    pair.real.route.shadows = [Shadow("echo", pair.copy.dispatcher, pair.tally)]
    pair.real.runner.gate.clear()
    asking = [pair.real.post(Client(b"[1]")) for _ in range(4)]
    await turns()
    pair.real.runner.gate.set()
    replies = [await each for each in asking]
    await turns()
    assert [reply.status for reply in replies if reply is not None] == [200, 503, 503, 503]
    assert (pair.copy.runner.batches, pair.outcomes) == ([[b"[1]"]], {"agreed": 1})


async def test_a_copy_for_an_api_that_was_dropped_is_shed() -> None:
    """Between the request and its copy, in the same turn of the loop, or before."""
    pair = Pair()
    asking = asyncio.create_task(pair.real.reply(b"[1]"))
    asyncio.get_running_loop().call_soon(pair.copy.dispatcher.remove_api, "echo")
    assert (await asking).status == 200
    await turns()
    assert pair.outcomes == {"shed": 1}
    assert await pair.ask() == 200
    assert pair.outcomes == {"shed": 2}
    assert pair.copy.runner.batches == []


async def test_nothing_is_compared_with_an_error_or_with_a_client_that_left() -> None:
    pair = Pair()
    pair.real.runner.error = RuntimeError("boom")
    assert await pair.ask() == 500
    assert pair.outcomes == {"not_compared": 1}

    pair.real.runner.error = None
    pair.real.runner.gate.clear()
    client = Client(b"[1]")
    asking = pair.real.post(client)
    await turns()
    client.leave()
    assert await asking is None
    pair.real.runner.gate.set()
    await turns()
    assert len(pair.copy.runner.batches) == 2
    assert (pair.outcomes, pair.tally.duration["echo"].count) == ({"not_compared": 1}, 1)


async def test_the_counts_are_metrics() -> None:
    assert list(ShadowTally().collect()) == []
    pair = Pair()
    await pair.ask()
    samples = {
        (sample.name, *sample.labels.values()): sample.value
        for metric in pair.tally.collect()
        for sample in metric.samples
    }
    assert samples["uncork_shadow_answers_total", "echo", "agreed"] == 1
    assert samples["uncork_shadow_duration_seconds_count", "echo"] == 1


async def test_a_copy_is_of_the_same_class() -> None:
    rules = ApiRules(name="echo", goal_s=50, bulk_goal_s=100)
    pair = Pair(rules)
    bulk = pair.real.metrics.bulk("echo")
    pair.real.route.classes = Classes(("interactive", "bulk"), bulk)
    assert (await pair.real.reply(b"[1]", headers=[JSON, (b"x-request-class", b"bulk")])).status == 200
    await turns()
    [job] = pair.copy.runner.jobs
    assert job.bulk_rows == 1


values = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**9), 10**9) | st.floats(-1e9, 1e9) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


@given(values, values)
def test_values_are_the_same_as_themselves_only(one: Any, other: Any) -> None:
    assert same_value(one, one)
    assert same_value(one, other) == same_value(other, one)
    if type(one) is type(other) is str:
        assert same_value(one, other) == (one == other)


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ({"a": [1.0, 2]}, {"a": [1.0000001, 2]}, True),
        ({"a": [1.0]}, {"a": [1.001]}, False),
        ({"a": 1}, {"b": 1}, False),
        ([1], [1, 1], False),
        (1, True, False),
        (1, 1.0, True),
        ("1", 1, False),
        (None, False, False),
    ],
)
def test_values(one: Any, other: Any, same: bool) -> None:
    assert same_value(one, other) is same


def tensor(*numbers: float, dtype: Any = np.float32, datatype: str = "FP32") -> HandlerResult:
    return HandlerResult(200, np.array(numbers, dtype).tobytes(), TensorForm(datatype, ()))


def written(value: Any, status: int = 200) -> HandlerResult:
    return HandlerResult(status, msgspec.json.encode(value))


LIST = ListForm("FP64", ())
LONG = "x" * 2**20


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (written([1]), written([1]), True),
        (written(LONG), written(LONG), True),
        (written([1.5]), written([1.5000001]), True),
        (written([1]), written([2]), False),
        (written([1]), written([1], status=400), False),
        (written(LONG), written(LONG + "y"), None),
        (HandlerResult(200, b"{"), HandlerResult(200, b"["), None),
        (HandlerResult(200, b"1" * 400), HandlerResult(200, b"1.5"), None),
        (HandlerResult(200, b"[" * 200_000 + b"]" * 200_000), HandlerResult(200, b"[]"), None),
        (tensor(1.0, math.nan), tensor(1.0000001, math.nan), True),
        (tensor(1.0), tensor(1.1), False),
        (tensor(1.0), tensor(1.0, 1.0), False),
        (tensor(1, dtype=np.int64, datatype="INT64"), tensor(2, dtype=np.int64, datatype="INT64"), False),
        (tensor(1.0), written(1.0), None),
        (HandlerResult(200, b"1,2", LIST), HandlerResult(200, b"1.0,2.0", LIST), True),
        (HandlerResult(200, b"1,2", LIST), HandlerResult(200, b"1,3", LIST), False),
        (HandlerResult(200, b"a", None, "image/png"), HandlerResult(200, b"b", None, "image/png"), None),
        (HandlerResult(200, b"a", None, "image/png"), HandlerResult(200, b"a", None, "text/css"), False),
    ],
)
def test_answers(one: HandlerResult, other: HandlerResult, same: bool | None) -> None:
    assert same_answer(one, other) is same
