"""One batch inside the worker: merge, handler, results."""

import json
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.workers.run_batch import Outlet, run_batch
from uncork_workers.definition.adapters import Json, NdArray
from uncork_workers.definition.outputs.responses import Response
from uncork_workers.definition.service import Service, api
from uncork_workers.wire.frames import FrameDecoder, encode_frame
from uncork_workers.wire.messages import Reply


class Request(NamedTuple):
    """A body, its number of rows as counted by the gateway, and their costs if the API has a cost."""

    body: bytes
    rows: int = 1
    costs: Sequence[float] = ()


class Sums(Service):
    def __init__(self) -> None:
        self.calls: list[int] = []

    @api(input=NdArray(dtype="int64", shape=(2,)))
    def add(self, rows: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        self.calls.append(len(rows))
        return np.stack([rows[:, 0], rows.sum(axis=1)], axis=1)

    @api(input=Json())
    def echo(self, items: list[Any]) -> list[Any]:
        self.calls.append(len(items))
        if "raise" in items:
            raise RuntimeError("a secret of the handler")
        return items


GOOD = st.lists(st.tuples(st.integers(-99, 99), st.integers(-99, 99)), min_size=1, max_size=4).map(
    lambda rows: Request(json.dumps(rows)[1:-1].encode(), len(rows))
)
BAD = st.sampled_from(
    [
        Request(b"[1,2,3]"),
        Request(b"[1,2],[3]", 2),
        Request(b'["a","b"]'),
        Request(b"[1,2],null", 2),
        Request(b"[1.5,2]"),
        Request(b"[1,\xff]"),
        Request(b"[1,99999999999999999999]"),
    ]
)


def run(
    requests: Sequence[Request], *, to: str = "add", limit_rows: int = 1000, service: Sums | None = None
) -> tuple[Reply, list[tuple[int, str]]]:
    """Run a batch; return the reply, and status and text of each response."""
    reply, bodies = run_batch(
        service or Sums(),
        to,
        *(request.body for request in requests),
        rows=[request.rows for request in requests],
        costs=[cost for request in requests for cost in request.costs] or None,
        limit_rows=limit_rows,
    )
    return reply, list(zip(reply.statuses, [body.decode() for body in bodies], strict=True))


FOUR = b"[0,0],[1,1],[2,2],[3,3]"


@pytest.mark.parametrize(
    ("limit", "calls"),
    [
        (100, [(4, 100)]),
        (99, [(3, 60), (1, 40)]),
        (50, [(2, 30), (1, 30), (1, 40)]),
        (29, [(1, 10), (1, 20), (1, 30), (1, 40)]),
    ],
)
def test_a_request_is_cut_by_what_its_rows_cost(limit: int, calls: list[tuple[int, float]]) -> None:
    """The response has the cost of each call."""
    service = Sums()

    reply, answers = run([Request(FOUR, 4, [10.0, 20.0, 30.0, 40.0])], limit_rows=limit, service=service)

    assert answers == [(200, "[0,0],[1,2],[2,4],[3,6]")]
    assert list(zip(service.calls, [cost for cost, _ in reply.chunks], strict=True)) == calls


@given(requests=st.lists(GOOD | BAD, min_size=1, max_size=6), limit_rows=st.integers(1, 6))
def test_everybody_is_answered_as_if_alone(requests: list[Request], limit_rows: int) -> None:
    alone = [run([request])[1][0] for request in requests]
    good = [request.rows for request, (status, _) in zip(requests, alone, strict=True) if status == 200]
    service = Sums()

    reply, answers = run(requests, limit_rows=limit_rows, service=service)

    assert answers == alone
    assert reply.worked
    assert sum(service.calls) == sum(good)
    assert [rows for rows, _ in reply.chunks] == service.calls
    assert all(0 < rows <= limit_rows for rows in service.calls)


@given(request=GOOD)
def test_a_good_request_gets_the_right_answer(request: Request) -> None:
    rows = json.loads(b"[" + request.body + b"]")

    _, ((status, text),) = run([request])

    assert status == 200
    assert json.loads(f"[{text}]") == [[one, one + two] for one, two in rows]


@given(request=BAD)
def test_a_bad_request_is_told_what_is_wrong(request: Request) -> None:
    _, ((status, text),) = run([request])

    assert status == 400
    assert text.endswith("; a row must have shape (2,), each value an integer (int64)")


def test_the_handler_is_not_called_for_bad_requests_alone() -> None:
    service = Sums()

    reply, answers = run([Request(b"[1]"), Request(b"[null,1]")], service=service)

    assert [status for status, _ in answers] == [400, 400]
    assert (service.calls, reply.chunks, reply.worked) == ([], [], True)


def test_a_request_with_other_rows_than_counted_is_refused_alone() -> None:
    _, answers = run([Request(b"[1,1],[2,2]", 1), Request(b"[3,3]")], limit_rows=1)

    assert answers[1] == (200, "[3,6]")
    assert answers[0][0] == 400


def test_a_request_that_makes_the_handler_fail_fails_alone(caplog: pytest.LogCaptureFixture) -> None:
    """It gets 500 with an id; only the log has the reason."""
    requests = [Request(b'"a"'), Request(b"nope"), Request(b'"raise"'), Request(b"[1]")]

    reply, answers = run(requests, to="echo")

    assert [status for status, _ in answers] == [200, 400, 500, 200]
    assert (answers[0][1], answers[3][1]) == ('"a"', "[1]")
    assert answers[1][1].startswith("not valid JSON: ")
    message, _, error_id = answers[2][1].rpartition(" ")
    assert message == "the handler of API 'echo' failed; error id"
    assert len(error_id) == 12
    assert f"[{error_id}]" in caplog.text
    assert 'raise RuntimeError("a secret of the handler")' in caplog.text
    assert not reply.worked


class Changing(Service):
    """Rows are headers that a response gets after it was made."""

    @api(input=Json(), policy="none")
    def stream(self, rows: list[Any]) -> Iterator[Any]:
        yield self.answers(rows)[0]

    @api(input=Json())
    def answers(self, rows: list[Any]) -> list[Any]:
        responses: list[Any] = [Response(b"x", headers={"x-a": "1"}) for _ in rows]
        for response, row in zip(responses, rows, strict=True):
            response.headers.update(row)
            if "x-bytes" in row:
                response.headers["x-bytes"] = b"1"
        return responses


@pytest.mark.parametrize(
    "wrong", [{"x": 5}, {"x-bytes": ""}, {"x": "€"}, {"content-length": "3"}, {"x y": "1"}, {"x": "a\r\nb"}]
)
@pytest.mark.parametrize("to", ["answers", "stream"])
def test_headers_that_change_later_are_checked_too(wrong: dict[str, Any], to: str) -> None:
    """Only the request of that response fails, and the reply can be sent."""
    bodies = (
        [b"{}", json.dumps(wrong).encode(), b'{"x-b":"2"}']
        if to == "answers"
        else [json.dumps(wrong).encode()]
    )
    outlet = Outlet()

    reply, answers = run_batch(Changing(), to, *bodies, outlet=outlet)

    assert reply.statuses == ([200, 500, 200] if to == "answers" else [500])
    assert outlet.pieces == []
    assert reply.headers is None or reply.headers[::2] == [[("x-a", "1")], [("x-a", "1"), ("x-b", "2")]]
    [sent] = FrameDecoder().feed(encode_frame(reply, answers))
    assert sent.message == reply
