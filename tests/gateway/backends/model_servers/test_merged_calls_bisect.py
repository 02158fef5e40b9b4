"""One bad request among many: it is found, and the others are answered."""

from __future__ import annotations

import math
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.gateway.backends.lines import bodies, sent, shout
from tests.gateway.backends.model_servers.fake_server import Call, Reply
from tests.gateway.backends.model_servers.merged_stage import stage
from uncork_gateway.backends.model_servers.merged_calls import (
    CallResult,
    Part,
    accepted_rows,
    bisect,
    refused,
)
from uncork_gateway.backends.model_servers.server import CallStatus, ServerResponse


def several(status: int) -> str:
    """The answer to each of several requests that were refused together."""
    text = f"the model server returned {status} to a call with the requests of several clients"
    return f'{status} {{"error":"{text}"}}'


async def test_a_server_that_cannot_run_merged_calls_is_asked_for_each_request() -> None:
    """Such as one whose model has no axis for batches; a request that is at fault itself gets its error."""

    def script(call: Call) -> Reply:
        return shout(call) if len(call.body.split()) == 1 else Reply(b"unexpected shape", 400)

    async with stage(script) as on:
        ran = await on.run(*(sent("400" if at == 20 else f"a{at}") for at in range(32)))
        assert bodies(ran.results) == ["400 no: 400" if at == 20 else f"A{at}" for at in range(32)]
        assert len(on.asked) == 1 + 2 + 4 + 8 + 32


@pytest.mark.parametrize("idempotent", [True, False])
async def test_a_call_with_more_rows_than_the_server_accepts_is_divided(idempotent: bool) -> None:
    """Even if nothing may be repeated, because the call has not run."""

    def script(call: Call) -> Reply:
        rows = len(call.body.split())
        text = b'{"error":"[request id: 1] inference request batch-size must be <= 4 for \'m\'"}'
        return Reply(text, 400) if rows > 4 else shout(call)

    limits: list[tuple[str, int]] = []
    async with stage(
        script, idempotent=idempotent, limited=lambda api, rows: limits.append((api, rows))
    ) as on:
        ran = await on.run(*(sent(each) for each in ("a b", "c d", "e f g", "h i", "j k l m n", "o", "400")))
        answers = bodies(ran.results)
        assert limits == [("api", 4)]
        assert [len(call.split()) for call in on.asked][:5] == [16, 4, 3, 2, 5]
    assert answers[:4] == ["A B", "C D", "E F G", "H I"]
    assert answers[4].startswith("400 ")
    assert answers[5:] == ["O", "400 no: 400"] if idempotent else [several(400)] * 2


async def test_a_server_that_dies_in_a_divided_call_takes_no_result_along() -> None:
    """Nothing may be repeated: results that have arrived are kept, and the slot is usable again."""

    def script(call: Call) -> Reply:
        if len(call.body.split()) > 2:
            return Reply(b"Task size 6 is larger than maximum input batch size 2", 400)
        return Reply(b"", missing=1) if b"die" in call.body else shout(call)

    async with stage(script, idempotent=False) as on:
        ran = await on.run(*map(sent, ("a b", "c", "die", "e")))
        died = "502 the model server died while running this request"
        assert (bodies(ran.results), ran.status) == (["A B", died, died, died], "failed")
        assert on.asked[1:] == ["a\nb", "c\ndie"]

        await on.slots.number(1)
        assert bodies((await on.run(sent("a"))).results) == ["A"]


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("[request id: <id_unknown>] inference request batch-size must be <= 8 for 'm'", 8),
        ("Task size 65 is larger than maximum input batch size 64", 64),
        ("inference request batch-size must be >= 1 for 'm'", None),
        ("a bad row", None),
        # Errors that quote a client.
        ("could not convert string to float: 'larger than maximum input batch size 1'", None),
        ("not a number: Task size 2 is larger than maximum input batch size 1", None),
        ("[request id: 1] not a number: 'inference request batch-size must be <= 1 for m'", None),
    ],
)
def test_the_rows_that_a_server_accepts_are_read_from_its_text(text: str, rows: int | None) -> None:
    assert accepted_rows(ServerResponse(400, (), b"", CallStatus(3, text))) == rows
    for body in (f'{{"error":"{text}"}}', f'{{\n    "error": "{text}"\n}}'):
        assert accepted_rows(ServerResponse(400, (), body.encode())) == rows


@pytest.mark.parametrize("idempotent", [True, False])
async def test_a_limit_with_which_no_call_works_is_not_kept(idempotent: bool) -> None:
    """The text may be a client's."""
    text = b'{"error":"Task size 2 is larger than maximum input batch size 1"}'
    limits: list[tuple[str, int]] = []
    async with stage(
        lambda call: Reply(text, 400),
        idempotent=idempotent,
        limited=lambda api, rows: limits.append((api, rows)),
    ) as on:
        ran = await on.run(sent("a"), sent("b"))
        assert bodies(ran.results) == [f"400 {text.decode()}"] * 2
        assert limits == []


async def test_what_is_not_idempotent_is_not_searched() -> None:
    async with stage(idempotent=False) as on:
        ran = await on.run(sent("a"), sent("500"))
        assert bodies(ran.results) == [several(500)] * 2
        assert len(on.asked) == 1


async def test_a_search_ends_where_it_is_nobodys_fault() -> None:
    def script(call: Call) -> Reply:
        return Reply(b"slower", 429) if call.body == b"a\n400" else shout(call)

    async with stage(script) as on:
        ran = await on.run(sent("a"), sent("400"), sent("b"), sent("c"))
        assert bodies(ran.results) == [several(429), several(429), "B", "C"]
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

    answers = await bisect(range(count), _refusal(count), ask)

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
    told: dict[int, list[ServerResponse]] = dict.fromkeys(
        range(count), refused(range(count), _refusal(count))
    )
    calls = Counter[int]()

    async def ask(group: range) -> list[CallResult] | ServerResponse:
        calls.update(group)
        if not culprits.intersection(group):
            return [Part(at) for at in group]
        told.update(dict.fromkeys(group, refused(group, _refusal(len(group)))))
        return _refusal(len(group))

    answers = await bisect(range(count), _refusal(count), ask)

    for at, answer in enumerate(answers):
        assert answer in (Part(at), told[at][0])
        if len(culprits) <= 4:
            assert answer == (_refusal(1) if at in culprits else Part(at)) or count == 1
    assert all(count <= 7 for count in calls.values())
