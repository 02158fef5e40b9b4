"""The warm-up: which batches run, for how long, and what is learned."""

import asyncio
import logging
from collections.abc import Callable
from contextlib import closing
from typing import Any

import numpy as np
import pandas as pd
import pytest

from uncork_workers.definition.adapters import Adapter, Json, NdArray, Requests
from uncork_workers.definition.adapters.base import Sample
from uncork_workers.definition.outputs.responses import Rejected, Response
from uncork_workers.definition.service import Service, api
from uncork_workers.process.batches.execution import Executor
from uncork_workers.process.warmup import Chunks, Example, WarmupFailed, examples_of, warm_up
from uncork_workers.wire.forms import ListForm, RecordsForm
from uncork_workers.wire.messages import RowResult
from uncork_workers.wire.overrides import for_all_apis
from uncork_workers.wire.schema import ApiSettings


def to_nobody(api: str, rows: int) -> None: ...


def example(body: bytes = b"[1,2]", **settings: Any) -> Example:
    return Example(api="predict", sample=Sample(body), settings=ApiSettings(**settings))


@pytest.mark.parametrize(
    ("settings", "sizes"),
    [
        ({"mb_max_batch_size": 1}, [1]),
        ({"mb_max_batch_size": 8}, [1, 2, 4, 8]),
        ({"mb_max_batch_size": 11}, [1, 2, 4, 8, 11]),
        ({"mb_max_batch_bytes": 33}, [1, 2, 4, 6]),
        ({"mb_max_batch_bytes": 2}, [1]),
        ({"policy": "none"}, [1]),
        ({"allowed_batch_sizes": (4, 16)}, [4, 16]),
        ({"allowed_batch_sizes": (4, 16, 64), "mb_max_batch_size": 16}, [4, 16]),
        ({"allowed_batch_sizes": (4, 16, 64), "mb_max_batch_size": 5}, [4, 5]),
        ({"allowed_batch_sizes": (4, 16, 64), "mb_max_batch_size": 3}, [3]),
        ({"cost": 2.5, "mb_max_batch_size": 10}, [1, 2, 4]),
        ({"cost": "bytes", "mb_max_batch_size": 10}, [1, 2]),
        ({"cost": 9, "mb_max_batch_size": 8}, [1]),
        ({"cost": 9, "mb_max_batch_size": 40, "allowed_lengths": (4, 10)}, [1, 2, 4]),
        ({"cost": 9, "mb_max_batch_size": 40, "allowed_lengths": (4, 8)}, [1, 2, 4, 5]),
        ({"cost": 9, "mb_max_batch_size": 40, "allowed_batch_sizes": (3, 8)}, [3, 4]),
    ],
)
def test_sizes_double_up_to_the_limit(settings: dict[str, Any], sizes: list[int]) -> None:
    assert example(**settings).sizes() == sizes


@pytest.mark.parametrize(
    ("body", "cost", "weight"),
    [
        (b"[1,2]", None, None),
        (b"[1,2]", 2.5, 2.5),
        (b"[1,2]", "bytes", 5),
        (b"", "bytes", 1),
        (b'{"n":"four"}', "n", 4),
        (b'{"n":7}', "n", 7),
    ],
)
def test_the_row_has_the_weight_that_the_gateway_would_find(
    body: bytes, cost: float | str | None, weight: float | None
) -> None:
    made = example(body, cost=cost)

    assert made.cost == weight
    assert made.batch(3).costs == (None if weight is None else [weight] * 3)


@pytest.mark.parametrize(
    ("settings", "total"),
    [
        ({}, 3),
        ({"allowed_batch_sizes": (4,)}, 3),
        ({"cost": 5}, 15),
        ({"cost": 5, "allowed_lengths": (4, 6, 8)}, 18),
        ({"cost": 5, "allowed_lengths": (4,)}, 12),
        ({"cost": 5, "allowed_lengths": (5,), "allowed_batch_sizes": (2, 4)}, 20),
    ],
)
def test_the_gateway_learns_the_time_of_a_padded_batch(settings: dict[str, Any], total: float) -> None:
    made = example(**settings)

    assert made.padded_total(3) == total
    assert made.batch(3).allowed_batch_sizes == settings.get("allowed_batch_sizes")
    assert made.batch(3).allowed_lengths == settings.get("allowed_lengths", ())


class Clocked(Service):
    """Takes 2 s + 1 s per row; its first call takes 50 s more, the first one of 4 rows 20 s more."""

    def __init__(self) -> None:
        self.now = 0.0
        self.calls: list[tuple[str, int]] = []

    def took(self, name: str, rows: int) -> None:
        fresh = (name, rows) not in self.calls
        self.now += 2 + rows + (50 if not self.calls else 20 if fresh and rows == 4 else 0)
        self.calls.append((name, rows))

    @api(input=NdArray(shape=(2,)), warmup=np.ones(2), mb_max_batch_size=16)
    def first(self, rows: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        assert rows.tolist() == [[1.0, 1.0]] * len(rows)
        self.took("first", len(rows))
        return rows

    @api(input=Json(), warmup={"n": 3}, cost="n")
    async def second(self, items: list[Any]) -> list[Any]:
        assert items == [{"n": 3}] * len(items)
        self.took("second", len(items))
        return [Rejected(422, "no")] * len(items)

    @api(input=Json())
    def third(self, items: list[Any]) -> list[Any]:
        raise AssertionError


def warmed_up(seconds: float, **overrides: Any) -> tuple[dict[str, Chunks], list[tuple[str, int]]]:
    service = Clocked()
    executor = Executor(service)
    examples = examples_of(Clocked, for_all_apis({"mb_max_batch_size": 12, **overrides}))
    told: list[tuple[str, int]] = []
    rehearsed = warm_up(
        executor,
        examples,
        seconds=seconds,
        on_size=lambda api, rows: told.append((api, rows)),
        clock=lambda: service.now,
    )
    assert told == list(dict.fromkeys(service.calls))  # each size, before it is run
    executor.close()
    return {api: one.chunks for api, one in rehearsed.items()}, service.calls


def test_what_is_slow_once_does_not_count() -> None:
    profile, calls = warmed_up(1000)

    assert profile == {
        "first": [(rows, 2 + rows) for rows in (1, 2, 4, 8, 12)],
        "second": [(3 * rows, 2 + rows) for rows in (1, 2, 4)],
    }
    assert [calls.count(("first", rows)) for rows in (1, 2, 4, 8, 12)] == [2] * 5


@pytest.mark.parametrize(
    ("seconds", "largest"),
    [(0.1, (1, 1)), (73.9, (1, 1)), (74, (2, 1)), (82, (2, 2)), (93.9, (2, 2)), (94, (4, 2))],
)
def test_a_size_that_would_not_end_in_time_is_not_begun(seconds: float, largest: tuple[int, int]) -> None:
    profile, calls = warmed_up(seconds)

    assert (int(profile["first"][-1][0]), int(profile["second"][-1][0] / 3)) == largest
    assert calls[:4] == [("first", 1)] * 2 + [("second", 1)] * 2


def test_the_log_says_what_was_done(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="uncork.worker")
    warmed_up(75)

    assert caplog.messages == [
        "first: warmed up with 1 to 2 rows in 64.0 s",
        "second: warmed up with 1 row in 6.0 s",
    ]


class Broken(Service):
    def __init__(self, error: BaseException | None) -> None:
        self._error = error

    @api(input=Json(), warmup=1)
    async def predict(self, items: list[Any]) -> Any:
        if self._error:
            raise self._error


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (ValueError("no such thing"), "ValueError on its warm-up example (rows: 1): no such thing"),
        (asyncio.CancelledError(), "CancelledError on its warm-up example (rows: 1): "),
        (KeyboardInterrupt(), "KeyboardInterrupt on its warm-up example (rows: 1): "),
        (None, "WrongResult on its warm-up example (rows: 1): "),
    ],
)
def test_a_handler_that_fails_ends_it(error: BaseException | None, reason: str) -> None:
    with closing(Executor(Broken(error))) as executor, pytest.raises(WarmupFailed) as caught:
        warm_up(executor, examples_of(Broken, []), seconds=1, on_size=to_nobody)

    assert str(caught.value).startswith(f"predict raised {reason}")
    assert caught.value.__cause__ is not None


def frame(rows: int) -> pd.DataFrame:
    return pd.DataFrame({"a": np.ones(rows, np.float32), "b": ["text"] * rows})


def result_of(adapter: Adapter, warmup: object, handler: Callable[[Any], Any]) -> RowResult | None:
    class Warm(Service):
        @api(input=adapter, warmup=warmup, mb_max_batch_size=2)
        def predict(self, rows: Any) -> Any:
            return handler(rows)

    rehearsed = warm_up(Executor(Warm()), examples_of(Warm, []), seconds=60, on_size=to_nobody)
    return rehearsed["predict"].result


@pytest.mark.parametrize(
    ("handler", "result"),
    [
        (
            lambda rows: np.ones((len(rows), 3), np.float16),
            RowResult(body=b"[1.0,1.0,1.0]", form=ListForm("FP16", (3,))),
        ),
        (lambda rows: np.ones((len(rows), 40_000), np.float32), RowResult(form=ListForm("FP32", (40_000,)))),
        (lambda rows: np.array(["x"] * len(rows)), RowResult(body=b'"x"', form=ListForm("BYTES", ()))),
        (lambda rows: [{"a": 1.5}] * len(rows), RowResult(body=b'{"a":1.5}')),
        (lambda rows: tuple([1, "a"] for _ in rows), RowResult(body=b'[1,"a"]')),
        (lambda rows: np.full(len(rows), 1, np.longdouble), RowResult(body=b"1.0")),
        (
            lambda rows: frame(len(rows)),
            RowResult(body=b'{"a":1.0,"b":"text"}', form=RecordsForm((("a", ListForm("FP32", ())),))),
        ),
        (lambda rows: {"a": [1] * len(rows)}, RowResult(body=b'{"a":1}')),
        (lambda rows: ["x" * 70_000] * len(rows), None),
        (
            lambda rows: [Response("<p>", content_type="text/html")] * len(rows),
            RowResult(body=b"<p>", content_type="text/html"),
        ),
        (lambda rows: [Response("y" * 70_000)] * len(rows), None),
        (lambda rows: [Response("made", status=201)] * len(rows), None),
        (lambda rows: [b"file"] * len(rows), None),
        (lambda rows: [Rejected(422, "no")] * len(rows), None),
    ],
)
def test_a_result_for_one_row_is_kept(handler: Callable[[Any], Any], result: RowResult | None) -> None:
    assert result_of(Json(), 1, handler) == result


@pytest.mark.parametrize(
    ("answer", "result"),
    [
        ("fine", RowResult(body=b"fine", content_type="text/plain; charset=utf-8")),
        ({"a": 1}, RowResult(body=b'{"a":1}', content_type="application/json")),
        (b"file", None),
        (Rejected(422, "no"), None),
    ],
)
def test_a_complete_response_is_kept_if_it_is_text(answer: Any, result: RowResult | None) -> None:
    assert result_of(Requests(), b"1", lambda rows: [answer] * len(rows)) == result


def test_an_example_that_is_not_valid_any_more_is_told() -> None:
    """A custom adapter may reject an example that it accepted at the definition."""

    class Fickle(Json):
        def merge(self, bodies: Any) -> list[Any]:
            return super().merge([b"["] if len(bodies) == 2 else bodies)

    class Service2(Service):
        @api(input=Fickle(), warmup=1)
        def predict(self, items: list[Any]) -> list[Any]:
            return items

    executor = Executor(Service2())
    with pytest.raises(
        WarmupFailed, match=r"predict raised InvalidInput on its warm-up example \(rows: 2\): "
    ):
        warm_up(executor, examples_of(Service2, []), seconds=60, on_size=to_nobody)


def test_an_example_must_fit_the_cost_in_force() -> None:
    class Costly(Service):
        @api(input=Json(), warmup={"text": "a"})
        def predict(self, items: list[Any]) -> list[Any]:
            return items

    assert [one.cost for one in examples_of(Costly, for_all_apis({"cost": "text"}))] == [1]
    with pytest.raises(WarmupFailed, match=r"predict: the warm-up example .* the field 'tokens' is missing"):
        examples_of(Costly, for_all_apis({"cost": "tokens"}))


class ShortOfMemory(Service):
    """Has room for so many rows in a call."""

    def __init__(self, room: int) -> None:
        self.room = room
        self.calls: list[int] = []

    @api(input=Json(), warmup=1, mb_max_batch_size=64)
    def predict(self, items: list[Any]) -> list[Any]:
        self.calls.append(len(items))
        if len(items) > self.room:
            raise MemoryError
        return items


@pytest.mark.parametrize(("room", "fits"), [(16, 16), (18, 18), (24, 24), (31, 28)])
def test_only_what_has_run_in_one_call_counts_as_fitting(room: int, fits: int) -> None:
    """Of the sizes between the last that worked and the one that was too large, none is cut into calls."""
    service = ShortOfMemory(room)
    with closing(Executor(service)) as executor:
        ended = warm_up(executor, examples_of(ShortOfMemory, []), seconds=60, on_size=to_nobody)

    assert executor.limits["predict"].most == fits
    worked = sorted({rows for rows in service.calls if rows <= room})
    assert [rows for rows, _ in ended["predict"].chunks] == worked


class Truncating(Service):
    """Pads rows to 128 or 512 tokens, and truncates longer ones."""

    def __init__(self) -> None:
        self.calls: list[int] = []

    @api(
        input=Json(),
        warmup={"tokens": 600},
        cost="tokens",
        allowed_lengths=[128, 512],
        allowed_batch_sizes=[1, 8],
        mb_max_batch_size=8 * 512,
    )
    def predict(self, items: list[Any]) -> list[Any]:
        self.calls.append(len(items))
        return items


def test_rows_longer_than_the_model_takes_run_in_one_call() -> None:
    """As in the gateway, a row counts with the length that the model cuts it to."""
    service = Truncating()
    with closing(Executor(service)) as executor:
        ended = warm_up(executor, examples_of(Truncating, []), seconds=60, on_size=to_nobody)

    assert service.calls == [1, 1, 8, 8]
    assert [cost for cost, _ in ended["predict"].chunks] == [512, 8 * 512]
