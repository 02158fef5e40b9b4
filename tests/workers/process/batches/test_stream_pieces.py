"""Encoding of streamed pieces."""

from typing import Any

import numpy as np
import pytest

from tests.workers.run_batch import Outlet
from uncork_workers.definition.outputs.responses import Rejected, Response, WrongResult
from uncork_workers.process.batches.streaming import Stream
from uncork_workers.wire.messages import AnswerHead

TEXT = "text/plain; charset=utf-8"
OCTETS = "application/octet-stream"
LINES = "application/x-ndjson"


def encoded(*pieces: Any) -> tuple[AnswerHead, list[bytes]]:
    outlet = Outlet()
    Stream(1, outlet).run(piece for piece in pieces)
    head, *others = [head for head, _ in outlet.pieces]
    assert head is not None
    assert set(others) <= {None}
    return head, [data for _, data in outlet.pieces]


@pytest.mark.parametrize(
    ("pieces", "content_type", "data"),
    [
        (["é", "", "b"], TEXT, ["é".encode(), b"", b"b"]),
        ([b"a", bytearray(b"b"), memoryview(b"c")], OCTETS, [b"a", b"b", b"c"]),
        ([{"a": 1}, [2], None, 3.5], LINES, [b'{"a":1}\n', b"[2]\n", b"null\n", b"3.5\n"]),
        ([np.float32(0.5), np.arange(2)], LINES, [b"0.5\n", b"[0,1]\n"]),
    ],
)
def test_the_first_piece_says_what_an_answer_is(
    pieces: list[Any], content_type: str, data: list[bytes]
) -> None:
    assert encoded(*pieces) == (AnswerHead(status=200, content_type=content_type), data)


def test_a_response_says_status_headers_and_type() -> None:
    response = Response("a", status=203, headers={"X-A": "1"}, content_type="text/event-stream")

    head, data = encoded(response, "b")

    assert head == AnswerHead(status=203, content_type="text/event-stream", headers=[("X-A", "1")])
    assert data == [b"a", b"b"]
    assert encoded(Response([1]), 2)[0].content_type == LINES


@pytest.mark.parametrize(
    ("pieces", "reason"),
    [
        (["a", b"b"], "the handler yielded text first, but bytes later"),
        ([b"a", 1], "the handler yielded bytes first, but JSON later"),
        ([1, "b"], "the handler yielded JSON first, but text later"),
        ([Response("a"), {}], "the handler yielded text first, but JSON later"),
        (["a", Response("b")], "only the first piece of a response can be a Response"),
        ([1, Rejected(400, "b")], "only the first piece of a response can be a Rejected"),
        ([Response(None, status=204)], "status 204 allows no body and cannot be streamed"),
        ([object()], "a result cannot be written as JSON: object is not supported"),
    ],
)
def test_what_cannot_be_sent_is_told(pieces: list[Any], reason: str) -> None:
    with pytest.raises(WrongResult) as caught:
        encoded(*pieces)
    assert str(caught.value).startswith(reason)
