"""Custom adapters."""

import gc
import weakref
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.workers.definition.adapters.raw_stage import Answered, merge, raw, run
from uncork_workers.definition.adapters import InvalidInput, Json, Request, RequestAdapter
from uncork_workers.wire.values import DefinitionError

Array = np.ndarray[Any, Any]


class Points(RequestAdapter):
    """Rows of two floats, built in one call for all requests."""

    accepts = ("application/x-points",)

    def handle_batch_request(self, requests: Sequence[Request]) -> Array:
        if any(len(request.body) != 8 for request in requests):
            raise InvalidInput("a point is 8 bytes")
        return np.frombuffer(b"".join(request.body for request in requests), "<f4").reshape(-1, 2)


class Numbers(RequestAdapter):
    """Rows of text numbers; rejects single rows and records its calls."""

    def __init__(self) -> None:
        self.calls: list[int] = []

    def handle_batch_request(self, requests: Sequence[Request]) -> list[Any]:
        self.calls.append(len(requests))
        return [
            int(request.body) if request.body.isdigit() else InvalidInput(f"no number: {request.body!r}")
            for request in requests
        ]


class Forgetful(RequestAdapter):
    """An adapter with a bug: it loses a row."""

    def handle_batch_request(self, requests: Sequence[Request]) -> list[int]:
        return [1] * (len(requests) - 1)


POINTS = st.tuples(st.integers(-99, 99), st.integers(-99, 99)).map(
    lambda point: np.array(point, "<f4").tobytes()
)


def sums(points: Array) -> list[float]:
    return [float(value) for value in points.sum(axis=1)]


def double(numbers: list[int]) -> list[int]:
    return [2 * number for number in numbers]


@given(bodies=st.lists(POINTS | st.binary(max_size=9), min_size=1, max_size=6), limit_rows=st.integers(1, 6))
def test_everybody_is_answered_as_if_alone(bodies: list[bytes], limit_rows: int) -> None:
    """Invalid requests and the cut of the batch do not change the responses of the others."""
    requests = list(map(raw, bodies))

    with np.errstate(all="ignore"):
        answers = run(Points(), sums, requests, limit_rows=limit_rows)
        alone = [run(Points(), sums, [request])[0] for request in requests]

    assert answers == alone
    assert [answer.status == 200 for answer in answers] == [len(body) == 8 for body in bodies]


def test_good_batches_are_made_in_one_call() -> None:
    adapter = Numbers()

    answers = run(adapter, double, [raw(b"1"), raw(b"2")], limit_rows=1)

    assert answers == [Answered(200, b"2"), Answered(200, b"4")]
    assert adapter.calls == [2]


def test_an_adapter_that_loses_rows_is_no_fault_of_the_clients(caplog: pytest.LogCaptureFixture) -> None:
    """They get 500, the log has the reason, and no client gets another's row."""
    answers = run(Forgetful(), double, [raw(b"1"), raw(b"2")])

    assert [answer.status for answer in answers] == [500, 500]
    assert "handle_batch_request returned 1 row for 2 requests" in caplog.text


def test_an_adapter_may_let_each_result_be_an_answer() -> None:
    assert not Json.answers_each

    class Answering(Numbers):
        answers_each = True

    (answer,) = run(Answering(), lambda rows: ["text"], [raw(b"1")])

    assert answer == Answered(200, b"text", "text/plain; charset=utf-8")


@pytest.mark.parametrize("wrong", ["text/csv", (), []])
def test_media_types_must_be_a_list(wrong: Any) -> None:
    class Wrong(Numbers):
        accepts = wrong

    with pytest.raises(DefinitionError, match=r"^Wrong: accepts must be a list of media types, got "):
        Wrong().describe()


def test_rows_of_json_are_no_requests() -> None:
    """A client of another protocol gets 400."""
    with pytest.raises(
        InvalidInput, match=r"^this API accepts requests only at its own route, not as rows of JSON$"
    ):
        Numbers().merge([b"1"])


class Made:
    """A row that a weak reference can point to."""


def test_a_rejected_row_leaves_nothing_to_the_garbage_collector() -> None:
    made = Made()
    kept = weakref.ref(made)

    class Rows(RequestAdapter):
        def handle_batch_request(self, requests: Sequence[Request]) -> list[Any]:
            nonlocal made
            rows = [made, InvalidInput("no")]
            del made
            return rows

    gc.disable()
    try:
        with pytest.raises(InvalidInput, match=r"^no$"):
            merge(Rows(), raw(b"1"), raw(b"2"))

        assert kept() is None
    finally:
        gc.enable()
