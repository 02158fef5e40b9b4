"""One bad request among many: it is found, and the others are answered."""

from __future__ import annotations

import math
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.gateway.backends.fake_server import Call, Reply
from tests.gateway.backends.lines import TEXT, bodies, sent, shout
from tests.gateway.backends.merged_stage import stage
from uncork_dispatcher import BatchResult
from uncork_gateway.backends.http_server import ServerResponse
from uncork_gateway.backends.merged_calls import CallResult, Part, bisect


@pytest.mark.parametrize("status", [400, 413, 422, 500])
async def test_one_bad_request_does_not_fail_its_neighbours(status: int) -> None:
    """It is found with 12 calls among 64, and gets the answer to itself alone."""
    async with stage() as on:
        batch = [sent(f"a{at}") for at in range(64)]
        batch[37] = sent(f"b {status} c")
        ran = await on.run(*batch)

        answers = bodies(ran.results)
        assert answers.pop(37) == f"{status} no: {status}"
        assert answers == [f"A{at}" for at in range(64) if at != 37]
        assert ran.status == "failed"
        assert len(on.asked) == 13
        assert on.asked[-1] == f"b\n{status}\nc"
        assert on.slots.out == [1]


async def test_a_bad_request_alone_gets_its_answer() -> None:
    async with stage() as on:
        ran = await on.run(sent("400"))
        assert ran == BatchResult([ServerResponse(400, (TEXT,), b"no: 400")], "failed")
        assert len(on.asked) == 1


async def test_a_server_that_refuses_everything_is_not_asked_for_long() -> None:
    """After more than four groups of one level were refused."""
    async with stage(lambda call: Reply(b"%d" % len(call.body.split()), 500)) as on:
        ran = await on.run(*(sent(f"a{at}") for at in range(64)))
        assert bodies(ran.results) == ["500 8"] * 64
        assert len(on.asked) == 1 + 2 + 4 + 8


async def test_what_is_not_idempotent_is_not_searched() -> None:
    async with stage(idempotent=False) as on:
        ran = await on.run(sent("a"), sent("500"))
        assert bodies(ran.results) == ["500 no: 500"] * 2
        assert len(on.asked) == 1


async def test_a_search_ends_where_it_is_nobodys_fault() -> None:
    def script(call: Call) -> Reply:
        return Reply(b"slower", 429) if call.body == b"a\n400" else shout(call)

    async with stage(script) as on:
        ran = await on.run(sent("a"), sent("400"), sent("b"), sent("c"))
        assert bodies(ran.results) == ["429 slower", "429 slower", "B", "C"]
        assert on.asked == ["a\n400\nb\nc", "a\n400", "b\nc"]


def _refusal(number: int) -> ServerResponse:
    return ServerResponse(400, (), b"%d" % number)


@given(st.integers(1, 300).flatmap(lambda count: st.tuples(st.just(count), st.integers(0, count - 1))))
async def test_one_culprit_costs_two_calls_a_level(case: tuple[int, int]) -> None:
    count, culprit = case
    asked: list[range] = []

    async def ask(group: range) -> list[CallResult] | ServerResponse:
        asked.append(group)
        return _refusal(len(group)) if culprit in group else [Part(at) for at in group]

    answers = await bisect(count, _refusal(count), ask)

    expected: list[CallResult] = [Part(at) for at in range(count)]
    expected[culprit] = _refusal(1)
    assert answers == expected
    assert len(asked) <= 2 * math.ceil(math.log2(count))


@given(
    st.integers(1, 100).flatmap(lambda count: st.tuples(st.just(count), st.sets(st.integers(0, count - 1))))
)
async def test_a_search_tells_everybody_something_true(case: tuple[int, set[int]]) -> None:
    """Up to four bad requests are all found; with more, no request gets an answer to others."""
    count, culprits = case
    told: dict[int, bytes] = dict.fromkeys(range(count), b"%d" % count)
    calls = Counter[int]()

    async def ask(group: range) -> list[CallResult] | ServerResponse:
        calls.update(group)
        if not culprits.intersection(group):
            return [Part(at) for at in group]
        told.update(dict.fromkeys(group, b"%d" % len(group)))
        return _refusal(len(group))

    answers = await bisect(count, _refusal(count), ask)

    for at, answer in enumerate(answers):
        assert answer in (Part(at), ServerResponse(400, (), told[at]))
        if len(culprits) <= 4:
            assert answer == (_refusal(1) if at in culprits else Part(at)) or count == 1
    assert all(count <= 7 for count in calls.values())
