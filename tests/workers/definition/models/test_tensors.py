"""The adapter for several named inputs: every form of a request, and requests that are wrong."""

import re
from collections.abc import Sequence

import numpy as np
import pytest

from uncork_workers.definition.adapters.base import InvalidInput
from uncork_workers.definition.models.tensors import TEXT, NamedTensors, Row
from uncork_workers.wire.forms import ColumnsForm, ListForm, TensorForm
from uncork_workers.wire.tensors import encoded, join_columns

ADAPTER = NamedTensors({"ids": ("int64", (None,)), "name": (TEXT, (1,))})
IDS, NAMES = np.array([[1, 2], [3, 4]]), [["a"], ["é"]]


def plain(rows: Sequence[Row]) -> list[object]:
    return [{name: np.asarray(value).tolist() for name, value in row.items()} for row in rows]


ROWS = [{"ids": [1, 2], "name": ["a"]}, {"ids": [3, 4], "name": ["é"]}]
TEXTS = encoded(["a", "é"], "BYTES")
COLUMNS = ("name", TensorForm("BYTES", (1,))), ("ids", TensorForm("INT64", (2,)))


def test_every_form_gives_the_same_rows() -> None:
    bodies = [b'{"ids": [1, 2], "name": ["a"]}', '{"name": ["é"], "ids": [3, 4]}'.encode()]
    binary = join_columns([TEXTS, IDS.tobytes()])
    listed = join_columns(['"a", "é"'.encode(), b"1,2,3,4"])
    lists = ColumnsForm((("name", ListForm("BYTES", (1,))), ("ids", ListForm("INT64", (2,)))))

    assert plain(ADAPTER.merge(bodies)) == ROWS
    assert plain(ADAPTER.merge_values(bodies)) == ROWS
    assert plain(ADAPTER.merge_columns([binary], ColumnsForm(COLUMNS), [2])) == ROWS
    assert plain(ADAPTER.merge_columns([listed], lists, [2])) == ROWS


@pytest.mark.parametrize(
    ("columns", "data", "says"),
    [
        (COLUMNS[:1], [TEXTS], "the request lacks 'ids'; send 'ids', 'name'"),
        (
            (*COLUMNS, ("more", COLUMNS[1][1])),
            [TEXTS, IDS.tobytes(), IDS.tobytes()],
            "has unknown inputs: 'more'",
        ),
        (
            (COLUMNS[0], ("ids", TensorForm("FP64", (2,)))),
            [TEXTS, IDS.tobytes()],
            "'ids': got a tensor of FP64",
        ),
        (
            (COLUMNS[0], ("ids", TensorForm("INT64", (1, 2)))),
            [TEXTS, IDS.tobytes()],
            "'ids': got a row of shape (1, 2)",
        ),
        ((COLUMNS[0], ("ids", TensorForm("INT64", (0,)))), [TEXTS, b""], "'ids': got a row of shape (0,)"),
        ((COLUMNS[0], ("ids", TensorForm("INT64", (2,)))), [TEXTS, b"short"], "'ids': expected 32 bytes"),
        (
            (("name", TensorForm("INT64", (1,))), COLUMNS[1]),
            [IDS[0].tobytes(), IDS.tobytes()],
            "'name': got a tensor of INT64",
        ),
        (
            (("name", TensorForm("BYTES", (2,))), COLUMNS[1]),
            [TEXTS * 2, IDS.tobytes()],
            "'name': got texts of shape (2,), expected (1,)",
        ),
        (
            (("name", TensorForm("BYTES", (1,))), COLUMNS[1]),
            [b"\xff\xff\xff\xff", IDS.tobytes()],
            "'name': a tensor of 2 BYTES ends within element 0",
        ),
        (
            (("name", ListForm("BYTES", (1,))), COLUMNS[1]),
            [b'"a", null', IDS.tobytes()],
            "'name': got null; send texts",
        ),
    ],
)
def test_wrong_tensors_are_invalid_input(columns: object, data: list[bytes], says: str) -> None:
    with pytest.raises(InvalidInput, match=re.escape(says)):
        ADAPTER.merge_columns([join_columns(data)], ColumnsForm(columns), [2])  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "body",
    [b"[1]", b"{", b'{"ids": NaN, "name": 1}', b"{},{}", b'{"ids": [1], "name": ["a"]} x', b"[" * 100_000],
)
def test_large_values_are_checked_one_by_one(body: bytes) -> None:
    with pytest.raises(InvalidInput):
        ADAPTER.merge_values([body])


def test_a_wrong_text_is_located() -> None:
    bodies = [b'{"ids": [1], "name": ["a"]}', b'{"ids": [1], "name": [["a"]]}']

    with pytest.raises(InvalidInput, match=r"^'name': .*`\$\[1\]\.name"):
        ADAPTER.merge(bodies)
