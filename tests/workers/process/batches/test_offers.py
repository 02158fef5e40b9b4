"""Batches for one media type, and complete responses."""

import json
from typing import Any

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from tests.workers.run_batch import run_batch
from uncork_workers.definition.adapters import Json, NdArray
from uncork_workers.definition.outputs.media_types import Csv, Npy
from uncork_workers.definition.outputs.responses import Rejected, Response
from uncork_workers.definition.service import Service, api
from uncork_workers.wire.forms import ListForm, RecordsForm, TensorForm, Wanted
from uncork_workers.wire.messages import Reply
from uncork_workers.wire.schema import CSV

OCTETS = "application/octet-stream"


class Offers(Service):
    """Handlers with all kinds of results; 13 makes each of them fail."""

    def __init__(self) -> None:
        self.calls: list[int] = []
        self._memory = np.zeros(9)

    def _note(self, rows: Any) -> None:
        self.calls.append(len(rows))
        if 13 in rows:
            raise ValueError("poison")

    @api(input=NdArray(dtype="int64", shape=()))
    def halves(self, rows: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        self._note(rows)
        return np.stack([rows, rows / 2], axis=1).astype("f4")

    @api(input=NdArray(dtype="int64", shape=()), output=[Csv(), Npy()])
    def frame(self, rows: np.ndarray[Any, Any]) -> pd.DataFrame:
        self._note(rows)
        return pd.DataFrame({"n": rows, "text": [f"{row},\n" for row in rows]})

    @api(input=Json())
    def pictures(self, items: list[int]) -> list[Image.Image]:
        self._note(items)
        return [Image.new("L", (item, 1)) for item in items]

    @api(input=Json())
    def mixed(self, items: list[int]) -> list[Any]:
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
    def reused(self, rows: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        self._memory[: len(rows)] = rows
        return self._memory[: len(rows)]


def run(
    to: str, requests: list[list[int]], *, service: Offers | None = None, **fields: Any
) -> tuple[Reply, list[bytes]]:
    bodies = [json.dumps(rows)[1:-1].encode() for rows in requests]
    reply, answers = run_batch(service or Offers(), to, *bodies, rows=list(map(len, requests)), **fields)
    assert all(type(answer) is bytes for answer in answers)
    return reply, answers


RAW, LISTED = TensorForm("FP32", (2,)), ListForm("FP32", (2,))
FRAME = RecordsForm((("n", ListForm("INT64", ())),))


@pytest.mark.parametrize("limit_rows", [1, 2, 3, 100])
def test_each_caller_gets_the_rows_of_an_array_as_it_wants_them(limit_rows: int) -> None:
    requests = [[2], [4, 6, 8], [10], [12, 14]]

    reply, answers = run("halves", requests, raw=["npy", "", "", "tensors"], limit_rows=limit_rows)

    assert (reply.statuses, reply.forms) == ([200] * 4, (RAW, LISTED, LISTED, RAW))
    assert (reply.content_types, reply.headers) == (None, None)
    assert answers == [
        np.array([2, 1], "<f4").tobytes(),
        b"[4.0,2.0],[6.0,3.0],[8.0,4.0]",
        b"[10.0,5.0]",
        np.array([12, 6, 14, 7], "<f4").tobytes(),
    ]


def test_calls_that_return_the_same_array_again_lose_nothing() -> None:
    reply, answers = run("reused", [[2], [4], [6]], raw=["tensors"] * 3, limit_rows=1)

    assert reply.forms == (TensorForm("FP64", ()),)
    assert np.frombuffer(b"".join(answers)).tolist() == [2, 4, 6]


def test_what_is_no_array_is_json_for_those_who_want_it_raw() -> None:
    reply, answers = run("frame", [[1], [2, 3]], raw=["npy", ""])

    assert (reply.statuses, reply.forms) == ([200] * 2, (FRAME,))
    assert json.loads(answers[0]) == {"n": 1, "text": "1,\n"}


def test_who_takes_json_gets_json_though_csv_comes_first() -> None:
    for accept in ("", "application/json"):
        reply, answers = run("frame", [[1], [2, 3]], accept=accept)

        assert (reply.content_types, reply.forms) == (None, (FRAME,))
        assert [json.loads(b"[%b]" % answer) for answer in answers] == [
            [{"n": row, "text": f"{row},\n"} for row in rows] for rows in ([1], [2, 3])
        ]


@pytest.mark.parametrize("accept", ["", CSV, "image/png"])
@pytest.mark.parametrize("limit_rows", [1, 3, 100])
def test_each_request_gets_what_the_handler_gave_in_its_place(accept: str, limit_rows: int) -> None:
    items = [0, 1, 2, 3, 0, 4, 1]
    row, kind = (b"0\r\n1.5\r\n", CSV) if accept == CSV else (b"1.5", "")

    raw: list[Wanted] | None = None if accept else ["npy"] * len(items)
    reply, answers = run("mixed", [[item] for item in items], accept=accept, raw=raw, limit_rows=limit_rows)

    assert reply.statuses == [200, 422, 201, 200, 200, 204, 422]
    assert answers == [row, b"not this", b"made", b"raw", row, b"", b"not this"]
    assert reply.content_types == [kind, "", "text/plain; charset=utf-8", OCTETS, kind, OCTETS, ""]
    assert reply.headers == [[], [], [("x-made", "é")], [], [], [], []]
    assert reply.worked


def test_rejections_alone_are_told_without_types() -> None:
    reply, answers = run("mixed", [[0], [1]])

    assert (reply.statuses, answers) == ([200, 422], [b"1.5", b"not this"])
    assert (reply.content_types, reply.headers, reply.worked) == (None, None, True)


def test_the_neighbours_of_a_bad_row_get_what_they_take() -> None:
    reply, answers = run("halves", [[2], [13], [4]], accept=CSV)
    assert (reply.statuses, answers[2]) == ([200, 500, 200], b"0,1\r\n4.0,2.0\r\n")

    reply, answers = run("halves", [[2], [13], [4]], raw=["", "", "tensors"])
    assert (reply.statuses, reply.forms) == ([200, 500, 200], (LISTED, None, RAW))
    assert (answers[0], answers[2]) == (b"[2.0,1.0]", np.array([4, 2], "<f4").tobytes())
