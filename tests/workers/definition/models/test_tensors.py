"""The adapter for several named inputs: every form of a request, and requests that are wrong."""

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
    "body",
    [b"[1]", b"{", b'{"ids": NaN, "name": 1}', b"{},{}", b'{"ids": [1], "name": ["a"]} x', b"[" * 100_000],
)
def test_large_values_are_checked_one_by_one(body: bytes) -> None:
    with pytest.raises(InvalidInput):
        ADAPTER.merge_values([body])


def test_numbers_may_be_not_finite() -> None:
    """Clients of V1 write NaN and infinity; a text may say so, too."""
    adapter = NamedTensors({"x": ("float32", (2,)), "name": (TEXT, ())})
    bodies = [b'{"x": [NaN, -Infinity], "name": "NaN"}', '{"name": "é", "x": [0.1, 2]}'.encode()]

    first, second = adapter.merge(bodies)

    assert str(plain([first])) == "[{'x': [nan, -inf], 'name': 'NaN'}]"
    assert plain([second]) == plain(adapter.merge(bodies[1:]))
    with pytest.raises(InvalidInput, match=r"^'x': .*`\$\[1\]\.x"):
        adapter.merge([bodies[0], b'{"x": [NaN, "a"], "name": "a"}'])


def test_a_wrong_text_is_located() -> None:
    bodies = [b'{"ids": [1], "name": ["a"]}', b'{"ids": [1], "name": [["a"]]}']

    with pytest.raises(InvalidInput, match=r"^'name': .*`\$\[1\]\.name"):
        ADAPTER.merge(bodies)
