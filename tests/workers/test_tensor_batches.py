"""Batches of raw tensors, and the datatype of results."""

from typing import Any

import numpy as np
import pytest

from uncork_workers.adapters import Json, NdArray
from uncork_workers.execution import Executor
from uncork_workers.frames import Batch, Reply, TensorForm
from uncork_workers.service import Service, api


class Kinds(Service):
    """Gives back what it gets, as one kind of results or another."""

    @api(input=NdArray(dtype="int16", shape=(2,)))
    def same(self, rows: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """As it came; 13 is poison."""
        if 13 in rows:
            raise ValueError("poison")
        return rows

    @api(input=NdArray(dtype="float32", shape=()))
    def single(self, rows: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """Single precision."""
        return rows

    @api(input=NdArray(dtype="float32", shape=()))
    def rounded(self, rows: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """Integers, if they are."""
        whole = rows.astype("int64")
        return whole if (whole == rows).all() else rows

    @api(input=Json())
    def echo(self, items: list[Any]) -> list[Any]:
        """Lists."""
        return items


def run(
    to: str,
    bodies: list[bytes],
    rows: list[int],
    *,
    form: TensorForm | None = None,
    limit_rows: int = 100,
) -> tuple[Reply, list[str]]:
    """Run a batch; returns the reply and the answers."""
    batch = Batch(
        batch=1, api=to, limit_rows=limit_rows, lengths=list(map(len, bodies)), rows=rows, form=form
    )
    reply, answers = Executor(Kinds()).run(batch, bodies)
    return reply, [answer.decode() for answer in answers]


PAIRS = TensorForm("UINT16", [2])


def pairs(*values: int) -> bytes:
    """Values as a tensor of UINT16."""
    return np.array(values, "<u2").tobytes()


@pytest.mark.parametrize("limit_rows", [1, 2, 3, 100])
def test_tensors_share_a_batch(limit_rows: int) -> None:
    """Each request gets the results of its own rows."""
    reply, answers = run(
        "same",
        [pairs(1, 2), pairs(3, 4, 5, 6), pairs(7, 8)],
        [1, 2, 1],
        form=PAIRS,
        limit_rows=limit_rows,
    )

    assert reply.statuses == [200] * 3
    assert answers == ["[1,2]", "[3,4],[5,6]", "[7,8]"]
    assert sum(rows for rows, _ in reply.chunks) == 4
    assert (reply.worked, reply.datatype) == (True, "INT16")


def test_only_bad_tensors_are_refused() -> None:
    """What one lacks and the other has too much of does not shift the rows of those between."""
    bodies = [pairs(1), pairs(2, 3), pairs(4, 5, 6), pairs(7, 40000), pairs(13, 0), pairs(8, 9)]

    reply, answers = run("same", bodies, [1] * 6, form=PAIRS)

    assert reply.statuses == [400, 200, 400, 400, 500, 200]
    assert answers[0] == "1 row of UINT16 of shape (2,) are 4 bytes, got 2"
    assert answers[1] == "[2,3]"
    assert answers[3].startswith("40000 out of bounds for int16; a row must have shape (2,), ")
    assert answers[5] == "[8,9]"


def test_text_of_tensors_is_text() -> None:
    """One element a row."""
    body = b"\2\0\0\0ab\0\0\0\0"

    reply, answers = run("echo", [body], [2], form=TensorForm("BYTES", []))

    assert answers == ['"ab",""']
    assert reply.datatype == ""


@pytest.mark.parametrize(
    ("to", "bodies", "limit_rows", "datatype"),
    [
        ("single", [b"1", b"2"], 100, "FP32"),
        ("rounded", [b"1", b"2"], 1, "INT64"),
        ("rounded", [b"1", b"2.5"], 100, "FP32"),
        ("rounded", [b"1", b"2.5"], 1, ""),
        ("echo", [b"1", b"2"], 100, ""),
        ("single", [b"x"], 100, ""),
    ],
)
def test_the_datatype_of_results_is_told(
    to: str, bodies: list[bytes], limit_rows: int, datatype: str
) -> None:
    """If it is one; nothing is told of lists, nor where calls differ, nor where there was none."""
    reply, _ = run(to, bodies, [1] * len(bodies), limit_rows=limit_rows)

    assert reply.datatype == datatype


def test_good_requests_have_a_datatype_though_another_failed() -> None:
    """They are answered like any."""
    reply, _ = run("same", [b"[1,2]", b"[13,0]"], [1, 1])

    assert reply.statuses == [200, 500]
    assert reply.datatype == "INT16"
