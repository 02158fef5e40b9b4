"""Rows that affect each other in a batch, found in services that run here."""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import ml_dtypes
import msgspec
import numpy as np
import pandas as pd
import pytest
from PIL import Image

from tests.expected import check_texts
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
KNOWN = {"x": [0.5, 1], "n": 3, "word": "red"}


class Checked(Service):
    """An API whose handler the test sets."""

    handler: Callable[[Rows], Rows]

    @api(input=NdArray(dtype="float32", shape=(3,)), warmup=EXAMPLE)
    def array(self, rows: Rows) -> Rows:
        return self.handler(rows)

    @api(input=NdArray(dtype="float32", shape=(None,)), warmup=EXAMPLE)
    def lengths(self, rows: Rows) -> Rows:
        return self.handler(rows)

    @api(input=Json(), warmup=KNOWN)
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


def per_row(rows: Rows) -> Rows:
    exps = np.exp(rows - rows.max(axis=1, keepdims=True))
    return exps / exps.sum(axis=1, keepdims=True)


def rounding(rows: Rows) -> Rows:
    """As a kernel that sums in another order in larger batches."""
    return per_row(rows) * (1 + 1e-4 * len(rows))


def image_of(row: Rows, noise: int = 0) -> Image.Image:
    pixels = np.full((4, 5, 3), 100 + int(10 * row[0]) + noise, np.uint8)
    return Image.fromarray(pixels)


def deep(rows: Rows) -> Rows:
    found: Rows = len(rows)
    for _ in range(200):
        found = [found]
    return [found for _ in rows]


def rejecting(rows: Rows) -> Rows:
    if any(row.tolist() != EXAMPLE for row in rows):
        raise KeyError("unknown")
    return rows


CASES: dict[str, tuple[str, Callable[[Rows], Rows]]] = {
    # Rows that do not affect each other.
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
    # Rows that do.
    "statistics over the batch": ("array", lambda rows: rows - rows.mean(axis=0)),
    "a global maximum": ("array", lambda rows: rows / np.abs(rows).max()),
    "the number of rows": ("array", lambda rows: [len(rows)] * len(rows)),
    "the place in the batch": ("text", lambda rows: [f"{at}" for at, _ in enumerate(rows)]),
    "labels": ("array", lambda rows: [str(row.max() == rows.max()) for row in rows]),
    "the row before": ("array", lambda rows: rows + np.roll(rows, 1, axis=0)),
    "padding to the longest": ("text", lambda rows: [{"p": len(row) / max(map(len, rows))} for row in rows]),
    "another shape": ("text", lambda rows: [[1.5] * max(map(len, rows)) for _ in rows]),
    "a key": ("json", lambda rows: [{f"of {len(rows)}": 1} for _ in rows]),
    "a column": ("frame", lambda rows: rows.assign(x=rows["x"] / rows["x"].sum())),
    "NaN in company": ("array", lambda rows: rows * (np.nan if len(rows) > 1 else 1.0)),
    "pixels": ("array", lambda rows: [image_of(row, 20 * len(rows)) for row in rows]),
    "the size of an image": ("array", lambda rows: [Image.new("L", (len(rows), 1)) for _ in rows]),
    "a little": ("array", lambda rows: rows * [1, 1 + 0.01 * (len(rows) - 1), 1]),
    "near zero": ("array", lambda rows: np.stack([[1.0, 0.001 * len(rows)]] * len(rows))),
    "a quarter, in half precision": (
        "array",
        lambda rows: (rows * (0.75 if len(rows) > 1 else 1)).astype(np.float16),
    ),
    "rounded bytes": ("array", lambda rows: [b"abc" + bytes([len(rows)]) for _ in rows]),
    "no bytes": ("array", lambda rows: [b"" if len(rows) > 1 else b"a" for _ in rows]),
    "media types": ("array", lambda rows: [b"" if len(rows) > 1 else 1 for _ in rows]),
    "deep": ("array", deep),
    "long texts": ("array", lambda rows: ["x" * 10_000 + str(len(rows)) for _ in rows]),
    "sorted": ("array", lambda rows: np.sort(rows.sum(axis=1))),
    "reversed": ("array", lambda rows: rows[::-1]),
    "the last first": ("array", lambda rows: [{"id": str(row[0])} for row in [*rows[-1:], *rows[:-1]]]),
    "changed rows rejected": ("array", rejecting),
    "changed rows rejected, and a leak": ("array", lambda rows: rejecting(rows) / len(rows)),
    # All four ways to change a row are rejected, and still there are at most eight calls.
    "changed documents rejected, and a leak": (
        "json",
        lambda rows: [{True: len(rows)}[row == KNOWN] for row in rows],
    ),
    "texts of one length": (
        "text",
        lambda rows: np.stack([np.frombuffer(row.encode(), np.uint8) for row in rows]).sum(axis=1),
    ),
    "one result": ("array", lambda rows: rows[:1]),
    "a result for each word": ("text", lambda rows: sorted({row[0] for row in rows})),
    "fails alone": ("array", lambda rows: rows["x"]),
}


def test_what_is_found() -> None:
    """Whether rows affect each other, where, and by how many times the tolerance; nothing if they do not."""
    lines = []
    for name, (of_api, handler) in CASES.items():
        found = compared(handler, of_api)
        assert found is not None
        # Messages of exceptions are long, and name places.
        figures = {name: str(figure)[:60] for name, figure in found.figures.items()}
        lines.append(f"{name}: {found.key} {found.excess:.3g} {figures}" if found.key else name)
    check_texts(Path(__file__).parent / "comparing.txt", "\n".join(lines) + "\n")


def test_neighbors_that_matter_in_one_order_only() -> None:
    found = compared(lambda rows: rows * (2 if rows[0].sum() < rows[-1].sum() else 1), most_rows=3)

    assert found is not None
    assert found.key == "batch-leak"


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
    [
        lambda rows: rows * (np.random.default_rng().random(rows.shape) < 0.5),
        lambda rows: [random.random() for _ in rows],
        drifting(),
        flipping(),
    ],
)
def test_what_differs_by_itself_is_not_judged(handler: Callable[[Rows], Rows]) -> None:
    found = compared(handler)

    assert found is not None
    assert found.key == "not-deterministic"


def test_a_row_that_cannot_be_changed_is_copied() -> None:
    calls = Calls("json", lambda rows: rows)
    example = replace(calls.example, sample=Sample(b'{"a": null}'))
    found = asyncio.run(compare(Batches(example, calls.run), most_rows=4, seconds=60))
    assert found == Comparison(key="not-compared/equal", figures={"why": "the example has nothing to change"})


def test_a_changed_row_that_ends_the_worker_ends_the_comparison() -> None:
    calls = Calls("array", lambda rows: rows)

    async def run(batch: Batch, bodies: Sequence[bytes]) -> tuple[Executed, float]:
        if len(calls.bodies) == 1:
            raise Died
        return await calls.run(batch, bodies)

    found = asyncio.run(compare(Batches(calls.example, run), most_rows=4, seconds=60))
    assert found == Comparison(key="not-compared", figures={"why": "the handler kills the worker process"})


def test_a_batch_that_does_not_fit_into_memory_is_not_judged() -> None:
    """It has run in smaller calls; nor is a changed row compared that would need them."""

    def with_room(most: int) -> Callable[[Rows], Rows]:
        def handler(rows: Rows) -> Rows:
            if sum(map(len, rows)) > most:
                raise MemoryError
            return rows

        return handler

    found = compared(with_room(6))
    assert found == Comparison(key="not-compared", figures={"why": "the handler runs out of memory"})
    assert compared(with_room(6), most_rows=2) == Comparison()


def test_a_changed_row_that_is_known_not_to_fit_is_left_out() -> None:
    calls = Calls("text", lambda rows: rows, cost="bytes")

    async def run(batch: Batch, bodies: Sequence[bytes]) -> tuple[Executed, float]:
        executed, seconds = await calls.run(batch, bodies)
        return executed._replace(reply=msgspec.structs.replace(executed.reply, limit=30.0)), seconds

    found = asyncio.run(compare(Batches(calls.example, run), most_rows=2, seconds=60))
    assert found == Comparison()
    assert [len(bodies) for bodies in calls.bodies] == [1, 1, 1, 2, 2, 1]


def test_rows_that_share_a_batch_have_one_group() -> None:
    """A handler may take its value from any row."""
    calls = Calls("json", lambda rows: [row["x"] * rows[0]["scale"] for row in rows])
    batches = Batches(replace(calls.example, sample=Sample(b'{"scale":2,"x":1.5}')), calls.run)

    found = asyncio.run(compare(batches, most_rows=4, seconds=60, keep=["scale"]))
    assert found == Comparison()
    other = asyncio.run(compare(batches, most_rows=4, seconds=60))
    assert other is not None
    assert other.key == "batch-leak"


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
        # For the model, it has four.
        (math.inf, {"cost": "bytes", "allowed_lengths": (4,), "mb_max_batch_size": 12}, 3),
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
    assert changed_rows(b'{"k":2,"x":[1.0,2.0]}', resize=False, keep=["k"]) == [
        b'{"k":2,"x":[2.0,1.0]}',
        b'{"k":2,"x":[0.25,1.0]}',
    ]
    assert changed_rows(b'{"x":"two words","k":"de"}', resize=True, keep=["k"]) == [
        b'{"x":"two words two words two words","k":"de"}',
        b'{"x":"two w","k":"de"}',
    ]
    assert changed_rows(b"[18446744073709551616]", resize=False)[0] == b"[36893488147419103232]"
