"""A bad row must not fail its neighbours."""

import json
import logging
import math
from collections.abc import Sequence
from typing import Any, Literal

import msgspec
import numpy as np
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.workers.run_batch import run_batch
from uncork_workers.definition.adapters import Json, NdArray
from uncork_workers.definition.service import Service, api
from uncork_workers.wire.frames import encode_frame
from uncork_workers.wire.messages import Reply, RowPath

POISON = 13


class Fragile(Service):
    """Doubles numbers in place and then fails if one of them is poison; records its calls."""

    def __init__(self) -> None:
        self.calls: list[list[int]] = []

    @api(input=NdArray(dtype="int64", shape=()))
    def double(self, rows: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        self.calls.append(rows.tolist())
        poisoned = POISON in rows
        rows *= 2
        if poisoned:
            raise ValueError("poison")
        return rows

    @api(input=Json())
    def twice(self, items: list[int]) -> list[int]:
        self.calls.append(items.copy())
        poisoned = POISON in items
        items[:] = [2 * item for item in items]
        if poisoned:
            raise ValueError("poison")
        return items

    @api(input=NdArray(dtype="int64"))
    def lengths(self, rows: np.ndarray[Any, Any]) -> list[int]:
        self.calls.append(list(rows.shape))
        return [rows.shape[1]] * len(rows)


def run(
    requests: list[list[int]], *, to: str = "double", service: Fragile | None = None, **fields: Any
) -> tuple[Reply, list[Any]]:
    """Run requests, given by their rows; return the reply, and per request its results or its status."""
    bodies = [json.dumps(rows)[1:-1].encode() for rows in requests]
    reply, answers = run_batch(service or Fragile(), to, *bodies, rows=list(map(len, requests)), **fields)
    return reply, [
        json.loads(b"[" + answer + b"]") if status == 200 else status
        for status, answer in zip(reply.statuses, answers, strict=True)
    ]


@pytest.mark.parametrize("to", ["double", "twice"])
@given(count=st.integers(2, 33), data=st.data())
def test_the_neighbours_of_a_bad_row_get_their_own_results(to: str, count: int, data: st.DataObject) -> None:
    """In at most 2*log2(n) extra calls, although the handler had changed its argument."""
    at = data.draw(st.integers(0, count - 1))
    service = Fragile()

    reply, answers = run(
        [[POISON if request == at else 100 + request] for request in range(count)], to=to, service=service
    )

    assert answers == [500 if request == at else [200 + 2 * request] for request in range(count)]
    assert len(service.calls) - 1 <= 2 * math.log2(count)
    assert not reply.worked


REQUESTS = st.lists(
    st.lists(st.integers(0, 99).filter(lambda value: value != POISON), min_size=1, max_size=5),
    min_size=2,
    max_size=20,
)


@given(requests=REQUESTS, limit_rows=st.integers(1, 30), data=st.data())
def test_requests_of_several_rows_fail_as_a_whole_and_alone(
    requests: list[list[int]], limit_rows: int, data: st.DataObject
) -> None:
    bad = data.draw(st.sets(st.sampled_from(range(len(requests))), min_size=1, max_size=4))
    for at in bad:
        requests[at][data.draw(st.integers(0, len(requests[at]) - 1))] = POISON
    service = Fragile()

    reply, answers = run(requests, limit_rows=limit_rows, service=service)

    assert answers == [
        500 if at in bad else [2 * value for value in rows] for at, rows in enumerate(requests)
    ]
    assert not reply.worked
    assert all(len(call) <= limit_rows for call in service.calls)
    worked = [len(call) for call in service.calls if POISON not in call]
    assert [rows for rows, _ in reply.chunks] == worked


def test_each_culprit_has_an_id_and_a_traceback_of_its_own(caplog: pytest.LogCaptureFixture) -> None:
    reply, answers = run_batch(Fragile(), "double", b"1", b"13", b"2", b"3", b"13")

    assert reply.statuses == [200, 500, 200, 200, 500]
    ids = [answers[at].decode().rpartition(" ")[2] for at in (1, 4)]
    assert len(set(ids)) == 2
    warning, *errors = caplog.records
    assert warning.getMessage() == (
        "API double failed on a batch of 5 requests; running parts of it to find the failing ones: "
        "ValueError('poison')"
    )
    assert [error.getMessage() for error in errors] == [
        f"API double failed on a batch of 1 row [{error_id}]" for error_id in ids
    ]
    told = [(one.error, one.message, one.id, one.requests) for one in reply.exceptions]
    assert told == [("ValueError", "poison", error_id, 1) for error_id in ids]
    for error in errors:
        assert error.exc_info
        assert error.exc_info[1] is not None
        assert error.exc_info[1].__context__ is None
    assert caplog.text.count("Traceback") == 2


def test_a_broken_model_is_not_searched_for_long(caplog: pytest.LogCaptureFixture) -> None:
    """All requests get the same 500, logged once; 16 were run alone."""
    service = Fragile()

    reply, answers = run([[POISON]] * 64, service=service)

    assert answers == [500] * 64
    assert len(service.calls) == 1 + 14 + 16
    assert (reply.worked, reply.chunks, reply.forms) == (False, [], (None,))
    assert [(one.error, one.requests) for one in reply.exceptions] == [("ValueError", 64)]
    assert [record.levelno for record in caplog.records] == [logging.WARNING, logging.ERROR]
    assert caplog.records[1].getMessage().startswith("API double failed on a batch of 64 rows [")
    assert caplog.text.count("Traceback") == 1


@pytest.mark.parametrize(
    ("requests", "idempotent"), [([[1], [POISON], [2]], False), ([[1, POISON, 2]], True)]
)
def test_a_batch_that_is_not_idempotent_or_one_request_runs_once(
    requests: list[list[int]], idempotent: bool, caplog: pytest.LogCaptureFixture
) -> None:
    service = Fragile()

    reply, answers = run(requests, service=service, idempotent=idempotent)

    assert (answers, reply.worked) == ([500] * len(requests), False)
    assert service.calls == [[1, POISON, 2]]
    (record,) = caplog.records
    assert record.levelno == logging.ERROR
    assert record.getMessage().startswith("API double failed on a batch of 3 rows [")
    assert record.exc_info is not None


def test_nobody_is_looked_for_when_the_gateway_has_no_time_to_wait() -> None:
    """It would kill the worker at the timeout, and no request would get a response."""
    service = Fragile()
    _, answers = run([[1], [POISON], [2]], timeout_s=0.0, service=service)

    assert (answers, service.calls) == ([500] * 3, [[1, POISON, 2]])


class Word(msgspec.Struct):
    lang: Literal["en", "de"]


class Counts(pydantic.BaseModel):
    of: dict[str, dict[str, int]]


class CountedJson(Json):
    """Counts its calls."""

    calls = 0

    def merge(self, bodies: Sequence[bytes]) -> list[Any]:
        self.calls += 1
        return super().merge(bodies)


class Typed(Service):
    words = CountedJson(type=Word)

    @api(input=words)
    def predict(self, words: list[Word]) -> list[str]:
        return [word.lang for word in words]

    @api(input=Json(type=Counts))
    def count(self, counts: list[Counts]) -> list[int]:
        return [len(each.of) for each in counts]


LONG = "\x7f" * 100_000


@pytest.mark.parametrize(
    ("to", "body", "start", "reason"),
    [
        ("predict", {"lang": LONG}, "not valid: Invalid enum value '\\x7f", RowPath(0, ("lang",))),
        ("count", {"of": {LONG: {"b": "c"}}}, "not valid: Input should be a valid integer", None),
    ],
)
def test_the_reason_quotes_a_bounded_part_of_what_the_client_sent(
    to: str, body: Any, start: str, reason: RowPath | None
) -> None:
    """A reply must fit into a frame, and the client knows what it has sent."""
    reply, [answer] = run_batch(Typed(), to, msgspec.json.encode(body))

    assert reply.statuses == [400]
    assert answer.decode().startswith(start)
    assert [pieces[-1] for pieces in reply.reasons.values()] == ([reason] if reason else [])
    assert len(encode_frame(reply, [answer])) < 10_000


def test_an_invalid_request_alone_is_parsed_once() -> None:
    """It may be large, and hold many errors."""
    before = Typed.words.calls

    reply, _ = run_batch(Typed(), "predict", b'{"lang":"fr"}')
    assert (reply.statuses, Typed.words.calls - before) == ([400], 1)
    assert reply.reasons[0][-1] == RowPath(0, ("lang",))


def test_requests_that_cannot_be_merged_are_run_apart() -> None:
    reply, answers = run_batch(Fragile(), "lengths", b"[1,2]", b"[1,2,3]", b"[4,5,6]", b"[]")

    assert reply.statuses == [200, 200, 200, 400]
    assert answers[:3] == [b"2", b"3", b"3"]
    assert not reply.worked
    assert [(one.error, one.id, one.requests) for one in reply.exceptions] == [("InvalidInput", "", 0)]
