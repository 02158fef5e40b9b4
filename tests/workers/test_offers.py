"""Batches whose callers take one media type, and answers that are not rows."""

import io
import json
import logging
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from uncork_workers.adapters import Json, NdArray
from uncork_workers.description import CSV, NPY
from uncork_workers.execution import Executor
from uncork_workers.frames import Batch, Reply
from uncork_workers.outputs import Rejected, Response
from uncork_workers.outputs.kinds import Csv, Npy
from uncork_workers.service import Service, api

OCTETS = "application/octet-stream"


class Offers(Service):
    """Handlers of results of every kind; 13 is poison to all of them."""

    def __init__(self) -> None:
        self.calls: list[int] = []

    def _note(self, rows: Any) -> None:
        self.calls.append(len(rows))
        if 13 in rows:
            raise ValueError("poison")

    @api(input=NdArray(dtype="int64", shape=()))
    def halves(self, rows: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """Pairs of single precision."""
        self._note(rows)
        return np.stack([rows, rows / 2], axis=1).astype("f4")

    @api(input=NdArray(dtype="int64", shape=()), output=[Csv(), Npy()])
    def frame(self, rows: np.ndarray[Any, Any]) -> pd.DataFrame:
        """A table."""
        self._note(rows)
        return pd.DataFrame({"n": rows, "text": [f"{row},\n" for row in rows]})

    @api(input=Json())
    def pictures(self, items: list[int]) -> list[Image.Image]:
        """One of so many pixels for each number."""
        self._note(items)
        return [Image.new("L", (item, 1)) for item in items]

    @api(input=Json())
    def mixed(self, items: list[int]) -> list[Any]:
        """A number, a rejection, a response or bytes, as the request says."""
        self._note(items)
        kinds = [
            1.5,
            Rejected(422, "not this"),
            Response("made", 201, {"x-made": "é"}),
            b"raw",
            Response(None, 204),
        ]
        return [kinds[item] for item in items]

    @api(input=NdArray(dtype="int64", shape=()))
    def lastless(self, rows: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """Loses a row."""
        self._note(rows)
        return rows[:-1]

    @api(input=NdArray(dtype="int64", shape=()))
    def uneven(self, rows: np.ndarray[Any, Any]) -> Any:
        """Arrays whose shape, dtype or kind depends on the first row."""
        self._note(rows)
        match rows[0]:
            case 1:
                return np.zeros((len(rows), 2))
            case 2:
                return np.zeros((len(rows), 3))
            case 3:
                return np.zeros((len(rows), 2), dtype="f4")
            case _:
                return [0] * len(rows)


def run(
    to: str,
    requests: list[list[int]],
    *,
    accept: str = "",
    limit_rows: int = 100,
    service: Offers | None = None,
) -> tuple[Reply, list[bytes]]:
    """Run requests, each of some rows."""
    bodies = [json.dumps(rows)[1:-1].encode() for rows in requests]
    batch = Batch(
        batch=1,
        api=to,
        limit_rows=limit_rows,
        lengths=list(map(len, bodies)),
        rows=list(map(len, requests)),
        accept=accept,
    )
    reply, answers = Executor(service or Offers()).run(batch, bodies)
    assert reply.lengths == list(map(len, answers))
    assert all(type(answer) is bytes for answer in answers)
    return reply, answers


@pytest.mark.parametrize("limit_rows", [1, 2, 3, 100])
def test_arrays_are_raw_rows_for_those_who_take_npy(limit_rows: int) -> None:
    """The gateway is told what they are."""
    reply, answers = run("halves", [[2], [4, 6, 8], [10]], accept=NPY, limit_rows=limit_rows)

    assert (reply.statuses, reply.datatype, reply.shape) == ([200] * 3, "FP32", [2])
    assert (reply.content_types, reply.headers) == (None, None)
    rows = [np.frombuffer(answer, "<f4").reshape(-1, 2).tolist() for answer in answers]
    assert rows == [[[2, 1]], [[4, 2], [6, 3], [8, 4]], [[10, 5]]]


def test_others_get_json_of_arrays() -> None:
    """With the datatype, but no shape: the rows are not raw."""
    for accept in ("", "application/json"):
        reply, answers = run("halves", [[2], [4, 6]], accept=accept)

        assert (reply.datatype, reply.shape) == ("FP32", None)
        assert answers == [b"[2.0,1.0]", b"[4.0,2.0],[6.0,3.0]"]


@pytest.mark.parametrize("limit_rows", [1, 2, 100])
def test_each_request_gets_csv_of_its_own(limit_rows: int) -> None:
    """The header once, then its rows."""
    for to, head, line in (
        ("frame", "n,text\r\n", '{0},"{0},\n"\r\n'),
        ("halves", "0,1\r\n", "{0}.0,{1}\r\n"),
    ):
        reply, answers = run(to, [[1], [2, 3], [4]], accept=CSV, limit_rows=limit_rows)

        assert reply.content_types == [CSV] * 3
        assert [answer.decode() for answer in answers] == [
            head + "".join(line.format(row, row / 2) for row in rows) for rows in ([1], [2, 3], [4])
        ]


def test_who_takes_json_gets_json_though_csv_comes_first() -> None:
    """The gateway says what the callers take; nothing said is JSON, as other protocols have it."""
    for accept in ("", "application/json", NPY):
        reply, answers = run("frame", [[1], [2, 3]], accept=accept)

        assert (reply.content_types, reply.shape) == (None, None)
        assert [json.loads(b"[%b]" % answer) for answer in answers] == [
            [{"n": row, "text": f"{row},\n"} for row in rows] for rows in ([1], [2, 3])
        ]


@pytest.mark.parametrize("accept", ["", "image/jpeg"])
def test_images_are_answers_of_their_own(accept: str) -> None:
    """One for each request of one row."""
    reply, answers = run("pictures", [[1], [2], [3]], accept=accept, limit_rows=2)

    assert reply.content_types == [accept or "image/png"] * 3
    assert [Image.open(io.BytesIO(answer)).size for answer in answers] == [(1, 1), (2, 1), (3, 1)]


def test_a_request_of_several_rows_cannot_have_images(caplog: pytest.LogCaptureFixture) -> None:
    """500, and the log says why; the others get theirs."""
    reply, answers = run("pictures", [[1], [2, 3], [4]])

    assert reply.statuses == [200, 500, 200]
    assert reply.content_types == ["image/png", "", "image/png"]
    assert answers[1].startswith(b"the handler of api 'pictures' failed; error id ")
    assert "a request of several rows cannot be answered with files or responses" in caplog.text


@pytest.mark.parametrize("accept", ["", CSV, NPY, "image/png"])
@pytest.mark.parametrize("limit_rows", [1, 3, 100])
def test_each_request_gets_what_the_handler_gave_in_its_place(accept: str, limit_rows: int) -> None:
    """Status, type and headers of one are not those of another, whatever comes first."""
    items = [0, 1, 2, 3, 0, 4, 1]
    row, kind = (b"0\r\n1.5\r\n", CSV) if accept == CSV else (b"1.5", "")

    reply, answers = run("mixed", [[item] for item in items], accept=accept, limit_rows=limit_rows)

    assert reply.statuses == [200, 422, 201, 200, 200, 204, 422]
    assert answers == [row, b"not this", b"made", b"raw", row, b"", b"not this"]
    assert reply.content_types == [kind, "", "text/plain; charset=utf-8", OCTETS, kind, OCTETS, ""]
    assert reply.headers == [[], [], [("x-made", "é")], [], [], [], []]
    assert reply.worked


def test_rejections_alone_are_told_without_types() -> None:
    """As the reasons for 400 are."""
    reply, answers = run("mixed", [[0], [1]])

    assert (reply.statuses, answers) == ([200, 422], [b"1.5", b"not this"])
    assert (reply.content_types, reply.headers, reply.worked) == (None, None, True)


@given(
    items=st.lists(st.integers(0, 4) | st.just(13), min_size=1, max_size=9),
    limit_rows=st.integers(1, 9),
    accept=st.sampled_from(["", CSV]),
)
def test_everybody_is_answered_as_if_alone(items: list[int], limit_rows: int, accept: str) -> None:
    """Also where some make the handler fail, and the others are run again."""
    if items.count(13) > 1:
        items = [item for item in items if item != 13] or [0]

    reply, answers = run("mixed", [[item] for item in items], accept=accept, limit_rows=limit_rows)

    for at, item in enumerate(items):
        one, (answer,) = run("mixed", [[item]], accept=accept)
        assert reply.statuses[at] == one.statuses[0]
        assert answers[at] == answer or item == 13
        assert (reply.content_types or [""] * 9)[at] == (one.content_types or [""])[0]
        assert (reply.headers or [[]] * 9)[at] == (one.headers or [[]])[0]


@pytest.mark.parametrize(
    ("accept", "shape", "body"),
    [(NPY, [2], np.array([4, 2], "<f4").tobytes()), (CSV, None, b"0,1\r\n4.0,2.0\r\n")],
)
def test_the_neighbours_of_a_bad_row_get_what_they_take(accept: str, shape: object, body: bytes) -> None:
    """They are run again, for the same callers."""
    reply, answers = run("halves", [[2], [13], [4]], accept=accept)

    assert reply.statuses == [200, 500, 200]
    assert (reply.shape, answers[2]) == (shape, body)


def test_a_batch_gets_too_few_results(caplog: pytest.LogCaptureFixture) -> None:
    """All get 500 with an id, when each was tried alone; the log says what was expected and what came."""
    service = Offers()

    reply, answers = run("lastless", [[1], [2, 3], [4]], service=service)

    assert service.calls == [4, 1, 3, 2, 1]
    assert (reply.statuses, reply.worked) == ([500] * 3, False)
    ids = [answer.decode().rpartition(" ")[2] for answer in answers]
    warning, *errors = caplog.records
    assert warning.levelno == logging.WARNING
    assert "the handler returned 3 results for 4 rows" in warning.getMessage()
    for error_id, rows in zip(ids, (1, 2, 1), strict=True):
        (error,) = [error for error in errors if error_id in error.getMessage()]
        assert error.exc_info
        told = {1: "returned 0 results for 1 row", 2: "returned 1 result for 2 rows"}[rows]
        assert told in str(error.exc_info[1])


@pytest.mark.parametrize("odd", [[1, 2], [2, 1], [1, 3], [3, 1], [1, 0], [0, 1]])
@pytest.mark.parametrize("limit_rows", [1, 100])
def test_raw_rows_of_one_batch_are_of_one_kind(odd: list[int], limit_rows: int) -> None:
    """The gateway is told one. Who does not fit gets 500: nobody's bytes are read as something else."""
    first, second = odd
    requests = [[first, 9], [13], [second, 9]] if limit_rows > 1 else [[first], [second]]

    reply, answers = run("uneven", requests, accept=NPY, limit_rows=limit_rows)

    kind = {1: ("FP64", [2]), 2: ("FP64", [3]), 3: ("FP32", [2]), 0: ("", None)}[first]
    assert reply.statuses == [200] + [500] * (len(requests) - 1)
    assert (reply.datatype, reply.shape) == kind
    count = len(requests[0])
    assert len(answers[0]) == {1: 16, 2: 24, 3: 8, 0: 1}[first] * count + (count - 1) * (first == 0)
