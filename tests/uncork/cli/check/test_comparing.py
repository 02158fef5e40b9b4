"""Rows that affect each other in a batch, found in services that run here."""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pandas as pd
import pytest
from PIL import Image

from uncork import Service, api
from uncork.adapters import DataFrame, Json, NdArray, Text
from uncork.cli.check.comparing import changed_rows, compare
from uncork.cli.check.figures import Comparison
from uncork.cli.check.growing import Batches, Died
from uncork.outputs import Response
from uncork_dispatcher.advice import advise
from uncork_gateway.backends.worker_connection import Executed
from uncork_workers.definition.adapters.base import Sample
from uncork_workers.definition.service import find_apis
from uncork_workers.process.batches.execution import Executor
from uncork_workers.process.warmup import Example
from uncork_workers.wire.messages import Batch
from uncork_workers.wire.schema import ApiSettings

Rows = Any
EXAMPLE = [0.5, -1.5, 2.0]


class Checked(Service):
    """An API whose handler the test sets."""

    handler: Callable[[Rows], Rows]

    @api(input=NdArray(dtype="float32", shape=(3,)), warmup=EXAMPLE)
    def array(self, rows: Rows) -> Rows:
        return self.handler(rows)

    @api(input=NdArray(dtype="float32", shape=(None,)), warmup=EXAMPLE)
    def lengths(self, rows: Rows) -> Rows:
        return self.handler(rows)

    @api(input=Json(), warmup={"x": [0.5, 1], "n": 3, "word": "red"})
    def json(self, rows: Rows) -> Rows:
        return self.handler(rows)

    @api(input=Text(), warmup="a short text")
    def text(self, rows: Rows) -> Rows:
        return self.handler(rows)

    @api(input=DataFrame(columns=["x", "n"]), warmup={"x": 1.5, "n": 2})
    def frame(self, rows: Rows) -> Rows:
        return self.handler(rows)


class Calls:
    """Runs batches of an API here, and counts them."""

    def __init__(self, name: str, handler: Callable[[Rows], Rows], **settings: Any) -> None:
        service = Checked()
        service.handler = handler
        self.executor = Executor(service)
        [sample] = [one.sample for one in find_apis(Checked) if one.name == name]
        assert sample is not None
        self.example = Example(api=name, sample=sample, settings=ApiSettings(**settings))
        self.batches = Batches(self.example, self.run)
        self.bodies: list[list[bytes]] = []

    async def run(self, batch: Batch, bodies: Sequence[bytes]) -> tuple[Executed, float]:
        assert batch.lengths == [len(body) for body in bodies]
        self.bodies.append(list(bodies))
        reply, answers = self.executor.run(batch, bodies)
        return Executed(reply, answers), reply.seconds


def compared(
    handler: Callable[[Rows], Rows], name: str = "array", *, most_rows: float = math.inf, **settings: Any
) -> Comparison | None:
    calls = Calls(name, handler, **settings)
    resize = name not in ("array", "lengths")
    found = asyncio.run(compare(calls.batches, most_rows=most_rows, seconds=60, resize=resize))
    calls.executor.close()
    assert len(calls.bodies) <= 8
    if found is not None and found.key:
        assert advise(found.key, **found.figures)
    return found


def key(handler: Callable[[Rows], Rows], name: str = "array", **options: Any) -> str:
    found = compared(handler, name, **options)
    assert found is not None
    return found.key


def per_row(rows: Rows) -> Rows:
    exps = np.exp(rows - rows.max(axis=1, keepdims=True))
    return exps / exps.sum(axis=1, keepdims=True)


def rounding(rows: Rows) -> Rows:
    """As a kernel that sums in another order in larger batches."""
    return per_row(rows) * (1 + 1e-4 * len(rows))


def image_of(row: Rows, noise: int = 0) -> Image.Image:
    pixels = np.full((4, 5, 3), 100 + int(10 * row[0]) + noise, np.uint8)
    return Image.fromarray(pixels)


RIGHT: dict[str, tuple[str, Callable[[Rows], Rows]]] = {
    "an array": ("array", per_row),
    "rounding": ("array", rounding),
    "half precision": ("array", lambda rows: (per_row(rows) * (1 + 1e-3 * len(rows))).astype(np.float16)),
    "bfloat16": (
        "array",
        lambda rows: (per_row(rows) * (1 + 1e-3 * len(rows))).astype(ml_dtypes.bfloat16),
    ),
    "half precision in a field": (
        "array",
        lambda rows: [{"p": row} for row in (per_row(rows) * (1 + 1e-3 * len(rows))).astype(np.float16)],
    ),
    "integers": ("array", lambda rows: rows.argmax(axis=1)),
    "NaN": ("array", lambda rows: np.where(rows < 0, np.nan, rows)),
    "open axes": ("lengths", lambda rows: rows.sum(axis=1)),
    "tuples": ("array", lambda rows: [(float(row[0]), "label") for row in rows]),
    "dicts": ("json", lambda rows: [{"sum": sum(row["x"]), "word": row["word"]} for row in rows]),
    "texts": ("text", lambda rows: [{"length": len(row), "upper": row.upper()} for row in rows]),
    "a table": ("frame", lambda rows: pd.DataFrame({"twice": rows["x"] * 2, "n": rows["n"]})),
    "bytes": ("array", lambda rows: [row.tobytes() for row in rows]),
    "images": ("array", lambda rows: [image_of(row, noise=len(rows) > 1) for row in rows]),
    "responses": ("text", lambda rows: [Response(row, headers={"x-n": str(len(rows))}) for row in rows]),
    "nothing": ("array", lambda rows: [None for _ in rows]),
    "nested numbers": ("array", lambda rows: [[[row.tolist(), 1], {}, []] for row in rows]),
}


@pytest.mark.parametrize("case", RIGHT)
def test_rows_that_do_not_affect_each_other(case: str) -> None:
    name, handler = RIGHT[case]

    assert compared(handler, name) == Comparison()


LEAKS: dict[str, tuple[str, Callable[[Rows], Rows], str]] = {
    "statistics over the batch": ("array", lambda rows: rows - rows.mean(axis=0), "of the result"),
    "a global maximum": ("array", lambda rows: rows / np.abs(rows).max(), "of the result"),
    "the number of rows": ("array", lambda rows: [len(rows)] * len(rows), "the result"),
    "the place in the batch": ("text", lambda rows: [f"{at}" for at, _ in enumerate(rows)], "the result"),
    "labels": ("array", lambda rows: [str(row.max() == rows.max()) for row in rows], "the result"),
    "the row before": ("array", lambda rows: rows + np.roll(rows, 1, axis=0), "of the result"),
    "padding to the longest": (
        "text", lambda rows: [{"p": len(row) / max(map(len, rows))} for row in rows], "`$.p` of the result",
    ),
    "another shape": ("text", lambda rows: [[1.5] * max(map(len, rows)) for _ in rows], "the result"),
    "a key": ("json", lambda rows: [{f"of {len(rows)}": 1} for _ in rows], "the result"),
    "a column": ("frame", lambda rows: rows.assign(x=rows["x"] / rows["x"].sum()), "`$.x` of the result"),
    "NaN in company": (
        "array", lambda rows: rows * (np.nan if len(rows) > 1 else 1.0), "`$[0]` of the result",
    ),
    "pixels": ("array", lambda rows: [image_of(row, 20 * len(rows)) for row in rows], "`$[0][0][0]` of the"),
    "the size of an image": (
        "array", lambda rows: [Image.new("L", (len(rows), 1)) for _ in rows], "the size of the image",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", LEAKS)
def test_rows_that_affect_each_other(case: str) -> None:
    name, handler, place = LEAKS[case]
    found = compared(handler, name)

    assert found is not None
    assert found.key == "batch-leak"
    assert place in found.figures["where"]
    assert found.excess >= 50


def test_neighbors_that_matter_in_one_order_only() -> None:
    def handler(rows: Rows) -> Rows:
        return rows * (2 if rows[0].sum() < rows[-1].sum() else 1)

    assert key(handler, most_rows=3) == "batch-leak"


def test_the_difference_has_its_place_values_and_row() -> None:
    def handler(rows: Rows) -> Rows:
        rows = rows.copy()
        rows[:, 1] *= 1 + 0.01 * (len(rows) - 1)
        return rows

    found = compared(handler)

    assert found is not None
    assert found.figures["where"] == "`$[1]` of the result"
    assert float(found.figures["found"]) == pytest.approx(1.03 * float(found.figures["expected"]), rel=1e-4)
    assert (found.figures["rows"], found.figures["tolerance"]) == (4, "0.1 % plus 1e-05")
    # A quantized model may differ so much.
    assert 1 < found.excess < 50


def test_numbers_near_zero_are_judged_by_the_largest_of_their_list() -> None:
    """As in the vectors of a quantized model."""
    found = compared(lambda rows: np.stack([[1.0, 0.001 * len(rows)]] * len(rows)))

    assert found is not None
    assert [found.figures[one] for one in ("where", "expected", "found")] == [
        "`$[1]` of the result",
        "0.001",
        "0.004",
    ]
    assert found.excess == pytest.approx(0.003 / 0.00101)


def test_bytes_that_differ_may_be_rounded() -> None:
    found = compared(lambda rows: [b"abc" + bytes([len(rows)]) for _ in rows])

    assert found is not None
    assert (found.key, found.excess) == ("batch-leak", 1)
    figures = [found.figures[one] for one in ("where", "expected", "found")]
    assert figures == ["the result", r"b'abc\x01'", r"b'abc\x04'"]
    assert key(lambda rows: [b"" if len(rows) > 1 else b"a" for _ in rows]) == "batch-leak"


def test_media_types_are_compared() -> None:
    found = compared(lambda rows: [b"" if len(rows) > 1 else 1 for _ in rows])

    assert found is not None
    assert [found.figures[one] for one in ("where", "expected", "found")] == [
        "the media type",
        "application/json",
        "application/octet-stream",
    ]


def test_places_are_cut_to_their_first_steps() -> None:
    def deep(rows: Rows) -> Rows:
        found: Rows = len(rows)
        for _ in range(200):
            found = [found]
        return [found for _ in rows]

    found = compared(deep)

    assert found is not None
    assert found.figures["where"] == f"`${'[0]' * 8}` of the result"


def test_long_texts_are_cut_to_where_they_differ() -> None:
    found = compared(lambda rows: ["x" * 10_000 + str(len(rows)) for _ in rows])

    assert found is not None
    assert found.figures["expected"] == "…" + "x" * 20 + '1"'


@pytest.mark.parametrize(
    "handler",
    [
        lambda rows: np.sort(rows.sum(axis=1)),
        lambda rows: rows[::-1],
        lambda rows: [{"id": str(row[0])} for row in [*rows[1:], rows[0]]],
    ],
)
def test_results_in_another_order(handler: Callable[[Rows], Rows]) -> None:
    found = compared(handler)

    assert found is not None
    assert (found.key, found.figures["rows"]) == ("batch-order", 4)
    assert found.figures["at"] != found.figures["origin"]


def test_the_row_whose_result_came_is_named() -> None:
    """The first row got the result of the last."""
    found = compared(lambda rows: [*rows[-1:], *rows[:-1]], most_rows=3)

    assert found is not None
    at, other = found.figures["at"], found.figures["origin"]
    assert other == (at - 2) % 3 + 1


def drifting() -> Callable[[Rows], Rows]:
    calls = [0]

    def handler(rows: Rows) -> Rows:
        calls[0] += 1
        return rows + calls[0]

    return handler


def flipping() -> Callable[[Rows], Rows]:
    """The first three batches of several rows differ, and nothing else: sampling that is seldom seen."""
    batches = [0]

    def handler(rows: Rows) -> Rows:
        batches[0] += len(rows) > 1
        return [batches[0] if len(rows) > 1 else 0 for _ in rows]

    return handler


@pytest.mark.parametrize(
    "handler",
    [lambda rows: rows * (np.random.default_rng().random(rows.shape) < 0.5), drifting(), flipping()],
)
def test_what_differs_by_itself_is_not_judged(handler: Callable[[Rows], Rows]) -> None:
    assert key(handler) == "not-deterministic"


def rejecting(rows: Rows) -> Rows:
    if any(row.tolist() != EXAMPLE for row in rows):
        raise KeyError("unknown")
    return rows


def test_a_handler_that_rejects_changed_rows_gets_copies() -> None:
    found = compared(rejecting)

    assert found is not None
    assert (found.key, found.excess) == ("not-compared/equal", 0)
    assert found.figures["why"].startswith("with a changed row, the handler raises KeyError: 'unknown'")
    assert key(lambda rows: rejecting(rows) / len(rows)) == "batch-leak"
    known = {"x": [0.5, 1], "n": 3, "word": "red"}
    # All four ways to change a row are rejected, and still there are at most eight calls.
    assert key(lambda rows: [{True: len(rows)}[row == known] for row in rows], "json") == "batch-leak"


def test_a_row_that_cannot_be_changed_is_copied() -> None:
    calls = Calls("json", lambda rows: rows)
    example = replace(calls.example, sample=Sample(b'{"a": null}'))
    found = asyncio.run(compare(Batches(example, calls.run), most_rows=4, seconds=60))
    assert found == Comparison(key="not-compared/equal", figures={"why": "the example has nothing to change"})


def test_rows_that_fail_only_together_are_an_error() -> None:
    def stacked(rows: Rows) -> Rows:
        return np.stack([np.frombuffer(row.encode(), np.uint8) for row in rows]).sum(axis=1)

    found = compared(stacked, "text")

    assert found is not None
    assert (found.key, found.excess, found.figures["rows"]) == ("handler-fails/mixed", math.inf, 4)
    assert found.figures["says"].startswith("raises ValueError: all input arrays must have the same shape")
    assert key(lambda rows: rows[:1]) == "handler-fails/mixed"
    assert key(lambda rows: sorted({row[0] for row in rows}), "text") == "handler-fails/mixed"


def test_an_example_that_fails_is_not_compared() -> None:
    found = compared(lambda rows: rows["x"])

    assert found is not None
    assert found.key == "not-compared"
    assert found.figures["why"].startswith("the handler raises IndexError")


def test_a_changed_row_that_ends_the_worker_ends_the_comparison() -> None:
    calls = Calls("array", lambda rows: rows)

    async def run(batch: Batch, bodies: Sequence[bytes]) -> tuple[Executed, float]:
        if len(calls.bodies) == 1:
            raise Died
        return await calls.run(batch, bodies)

    found = asyncio.run(compare(Batches(calls.example, run), most_rows=4, seconds=60))
    assert found == Comparison(key="not-compared", figures={"why": "the handler kills the worker process"})


def test_time_ends_it() -> None:
    calls = Calls("array", lambda rows: rows)
    found = asyncio.run(compare(calls.batches, most_rows=4, seconds=-1))
    assert found == Comparison(key="not-compared", figures={"why": "the time is over; raise --seconds"})
    assert calls.bodies == []

    async def hangs(batch: Batch, bodies: Sequence[bytes]) -> tuple[Executed, float]:
        await asyncio.Event().wait()
        raise AssertionError

    example = replace(calls.example, settings=ApiSettings(timeout=0.001))
    found = asyncio.run(compare(Batches(example, hangs), most_rows=4, seconds=60))
    assert found is not None
    assert found.figures["why"] == "a batch did not finish within timeout"


@pytest.mark.parametrize(
    ("most_rows", "settings", "rows"),
    [
        (1, {}, 0),
        (math.inf, {"mb_max_batch_size": 1}, 0),
        (2, {}, 2),
        (math.inf, {"mb_max_batch_size": 3}, 3),
        (math.inf, {"allowed_batch_sizes": (2,)}, 2),
        (math.inf, {"policy": "none"}, 4),
        # A row costs 14 bytes, or a little more.
        (math.inf, {"cost": "bytes", "mb_max_batch_size": 45}, 3),
        (math.inf, {"mb_max_batch_bytes": 45}, 3),
    ],
)
def test_only_rows_that_may_share_a_batch_are_compared(
    most_rows: float, settings: dict[str, Any], rows: int
) -> None:
    calls = Calls("array", lambda rows: rows, **settings)
    found = asyncio.run(compare(calls.batches, most_rows=most_rows, seconds=60, resize=False))

    assert found == (Comparison() if rows else None)
    assert max(map(len, calls.bodies), default=0) == rows


def test_rows_are_changed_in_numbers_then_in_lengths() -> None:
    assert changed_rows(b"[0,0.0,4,2.5,true]", resize=False) == [
        b"[2,0.5,5,5.0,true]",
        b"[0,0.5,3,0.625,true]",
    ]
    assert changed_rows(b'"two words"', resize=True) == [b'"two words two words two words"', b'"two w"']
    assert changed_rows(b'{"a":[["x"]],"b":null}', resize=True) == [b'{"a":[["x","x","x"]],"b":null}']
    assert changed_rows(b'"two words"', resize=False) == []
    assert changed_rows(b"[NaN]", resize=True) == []
    assert changed_rows(b"[18446744073709551616]", resize=False)[0] == b"[36893488147419103232]"


def test_random_results_are_never_safe() -> None:
    made = random.Random(1)

    assert key(lambda rows: [made.random() for _ in rows], "text") == "not-deterministic"
