"""The hint for a handler that treats the rows of a batch as one row."""

import linecache
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest

from tests.workers.run_batch import Outlet, run_batch
from uncork_workers.definition.adapters import Json, NdArray
from uncork_workers.definition.hints import adding_hints
from uncork_workers.definition.service import Service, api

ROWS = np.array([[1.0, 2.0]])


def second(row: Any) -> Any:
    return row[1]


class Model:
    def predict(self, table: Any) -> Any:
        if np.ndim(table) > 2:
            raise ValueError("Found array with dim 3")
        return table


def notes(handler: Callable[[Any], Any], rows: Any) -> list[str]:
    with pytest.raises(Exception, match=r".") as caught, adding_hints(Service(), rows):
        handler(rows)
    return getattr(caught.value, "__notes__", [])


@pytest.mark.parametrize(
    ("handler", "rows", "expression"),
    [
        (lambda row: row[1], ROWS, "row[1]"),
        (lambda row: row[0] + row[1], [4], "row[1]"),
        (lambda row: row["size"], [{"size": 4}], "row['size']"),
        (lambda text: text.upper(), ["a", "b"], "text.upper"),
        (lambda row: second(row), ROWS, "row[1]"),
        (lambda row: Model().predict([row])[0], ROWS, "[row]"),
    ],
)
def test_a_handler_that_treats_the_rows_as_one(
    handler: Callable[[Any], Any], rows: Any, expression: str
) -> None:
    """The hint names the failed expression, also in a function that the handler calls."""
    [note] = notes(handler, rows)

    count = "1 row" if len(rows) == 1 else f"{len(rows)} rows"
    assert note.startswith(
        f"hint: a handler receives all rows of a batch (here {count}), but {expression} treats them as one "
        "row; "
    )


def fails(rows: Any) -> None:
    labels = ["no", "yes"]
    labels[len(rows) + 5] = "never"


@pytest.mark.parametrize(
    ("handler", "rows"),
    [
        (fails, [1]),
        (lambda rows: [row[1] for row in rows], [[1]]),
        (lambda rows: rows[:, 5], ROWS),
        (lambda rows: Model().predict(rows[0])["x"], ROWS),
        (lambda rows: Model().predict(np.stack([rows, rows])), ROWS),
        (lambda frame: frame["romos"], pd.DataFrame({"rooms": [1]})),
        (lambda frame: frame.romos, pd.DataFrame({"rooms": [1]})),
        (lambda rows: rows.sum(axis=5), ROWS),
        (lambda rows: rows.total(), ROWS),
        (lambda rows: 1 / 0, ROWS),
    ],
)
def test_other_faults_get_no_such_hint(handler: Callable[[Any], Any], rows: Any) -> None:
    """A guess would mislead."""
    assert notes(handler, rows) == []


def test_code_without_its_source_gets_no_hint() -> None:
    namespace: dict[str, Any] = {}
    exec("def handler(row): return row[1]", namespace)

    assert notes(namespace["handler"], ROWS) == []


class OneRow(Service):
    @api(input=NdArray(shape=(2,)))
    def predict(self, row: Any) -> Any:
        return row[0] + row[1]

    @api(input=Json())
    async def asynchronous(self, row: Any) -> Any:
        return row["size"]

    @api(input=Json(), policy="none")
    def stream(self, row: Any) -> Any:
        yield row["size"]


@pytest.mark.parametrize("to", ["predict", "asynchronous", "stream"])
def test_the_log_has_the_hint(to: str, caplog: pytest.LogCaptureFixture) -> None:
    body = b"[1,2]" if to == "predict" else b'{"size":4}'
    outlet = Outlet()

    reply, [answer] = run_batch(OneRow(), to, body, outlet=outlet, idempotent=False)

    assert (reply.statuses, outlet.pieces) == ([500], [])
    assert "hint: a handler receives all rows of a batch (here 1 row)" in caplog.text
    assert b"row" not in answer


def test_a_file_that_was_edited_since_it_was_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The positions may cut a character in two; the handler's error must survive."""
    monkeypatch.setattr(linecache, "getline", lambda *_: "\N{EURO SIGN}" * 100)
    with pytest.raises(IndexError), adding_hints(Service(), ROWS):
        second(ROWS)
