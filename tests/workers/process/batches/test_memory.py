"""Batches that do not fit into memory which lives as long as Python refers to it, as that of torch does."""

from __future__ import annotations

import gc
import itertools
import logging
import math
import random
import time
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.examples import at_most
from tests.workers.run_batch import Outlet, batch_of
from uncork_workers.definition.adapters import Json
from uncork_workers.definition.service import Service, api
from uncork_workers.process.batches.execution import Executor
from uncork_workers.wire.messages import Reply

FITS_NOWHERE = 1000


class Tensor:
    """Takes memory of a device until nothing refers to it."""

    used = 0.0
    room = 0.0

    def __init__(self, size: float) -> None:
        self.size = 0.0
        if Tensor.used + size > Tensor.room:
            raise RuntimeError("CUDA out of memory. Tried to allocate 20.00 MiB")
        self.size = size
        Tensor.used += size

    def __del__(self) -> None:
        Tensor.used -= self.size


class Model(Service):
    """A row takes as much memory as its number says; the sum of a half is allocated before the rest."""

    def setup(self) -> None:
        self.calls: list[int] = []
        self.in_use: list[float] = []

    def _run(self, rows: list[Any]) -> list[Any]:
        self.calls.append(len(rows))
        self.in_use.append(Tensor.used)
        if "quote" in rows:
            raise ValueError("CUDA out of memory")
        sizes = [row["n"] if isinstance(row, dict) else row for row in rows]
        first = Tensor(sum(sizes) / 2)
        second = Tensor(sum(sizes) / 2)
        assert first is not second
        return rows

    @api(input=Json())
    def predict(self, rows: list[Any]) -> list[Any]:
        return self._run(rows)

    @api(input=Json())
    async def later(self, rows: list[Any]) -> list[Any]:
        return self._run(rows)

    @api(input=Json())
    def padded(self, rows: list[Any]) -> list[Any]:
        self._run([max(row["n"] for row in rows)] * len(rows))
        return rows


@pytest.fixture(autouse=True)
def no_collector() -> Iterator[None]:
    """Nothing frees memory by chance."""
    gc.disable()
    yield
    gc.enable()


def run(executor: Executor, *bodies: bytes, api: str = "predict", **fields: Any) -> tuple[Model, Reply]:
    model = executor._service
    assert isinstance(model, Model)
    model.setup()
    reply, answers = executor.run(batch_of(api, *bodies, **fields), list(bodies))
    for status, body, answer in zip(reply.statuses, bodies, answers, strict=True):
        assert status == 500 or answer == body
    assert set(model.in_use) == {0}
    assert Tensor.used == 0
    return model, reply


@pytest.fixture
def executor(caplog: pytest.LogCaptureFixture) -> Iterator[Executor]:
    caplog.set_level(logging.CRITICAL)  # records keep nothing, but pytest shows them
    with closing(Executor(Model())) as made:
        yield made


@pytest.mark.parametrize("api", ["predict", "later"])
@pytest.mark.parametrize(
    ("requests", "room", "most"),
    [
        (64, 7, 17),
        (64, 31, 8),
        (64, 32, 4),
        (64, 100, 1),
        (256, 7, 50),
        (256, 31, 20),
        (256, 32, 20),
        (256, 100, 8),
    ],
)
def test_all_are_answered_and_what_fits_is_learned(
    requests: int, room: int, most: int, api: str, executor: Executor
) -> None:
    """The memory of a failed call is free before the next, without the garbage collector."""
    Tensor.room = room
    model, reply = run(executor, *[b"1"] * requests, api=api)
    assert reply.statuses == [200] * requests
    assert len(model.calls) <= most
    assert reply.memory_failures <= 7

    for _ in range(4):
        model, reply = run(executor, *[b"1"] * requests, api=api)
        assert reply.statuses == [200] * requests
    assert reply.memory_failures == 0
    if requests > room:
        assert reply.limit is not None
        assert 0.85 * room <= reply.limit <= math.ceil(1.25 * room)  # it grows to look for more room
    else:
        assert reply.limit is None


def test_a_request_of_many_rows_gets_smaller_calls(executor: Executor) -> None:
    """Some of them show that the number of rows is the reason."""
    Tensor.room = 31
    body = b",".join([b"1"] * 256)
    for _ in range(10):
        model, reply = run(executor, body, rows=[256])
        assert reply.statuses == [200]
    assert reply.limit is not None
    assert reply.memory_failures == 0
    assert max(model.calls) <= 31


def test_large_rows_of_one_request_shrink_nothing(executor: Executor) -> None:
    """Only two of them in one call do not fit."""
    Tensor.room = 100
    body = b",".join([b"60", *[b"1"] * 61, b"60"])
    for _ in range(5):
        _, reply = run(executor, body, rows=[63])
        assert (reply.statuses, reply.limit) == ([200], None)
        _, reply = run(executor, *[b"1"] * 64)
        assert reply.memory_failures == 0


@pytest.mark.parametrize("body", [b"60,60", b"60,60,60,60", b"1000,1"])
@pytest.mark.parametrize("at", [0, 100, 255])
def test_a_request_that_needs_small_calls_leaves_those_of_others_large(
    body: bytes, at: int, executor: Executor
) -> None:
    Tensor.room = 100
    bodies = [b"0"] * 256
    bodies[at] = body
    model, reply = run(executor, *bodies, rows=[one.count(b",") + 1 for one in bodies])

    assert reply.statuses[at] == (500 if body == b"1000,1" else 200)
    assert sum(status == 200 for status in reply.statuses) >= 255
    assert len(model.calls) <= 30


def test_nothing_is_learned_of_clients_that_leave(caplog: pytest.LogCaptureFixture) -> None:
    """The request at fault may then not run alone, and explain the failures of others with it."""
    caplog.set_level(logging.CRITICAL)
    outlet = Outlet()

    class Left(Model):
        def _run(self, rows: list[Any]) -> list[Any]:
            try:
                return super()._run(rows)
            finally:
                if FITS_NOWHERE in rows:
                    outlet.leave(0)

    Tensor.room = 100
    bodies = [b"%d" % FITS_NOWHERE, *[b"1"] * 63]
    model = Left()
    model.setup()
    with closing(Executor(model, outlet)) as executor:
        for _ in range(4):
            outlet.gone.clear()
            reply, _ = executor.run(batch_of("predict", *bodies), bodies)
            assert (reply.statuses, reply.limit) == ([499] + [200] * 63, None)
            assert model.calls == [64, 31, 32]
            model.calls.clear()

        Tensor.room = 32
        outlet.gone.clear()
        for _ in range(4):
            reply, _ = executor.run(batch_of("predict", *bodies[1:]), bodies[1:])
        assert reply.limit is not None


def test_parts_without_the_clients_that_leave_teach(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL)
    outlet = Outlet()

    class Left(Model):
        def _run(self, rows: list[Any]) -> list[Any]:
            outlet.leave(255)
            return super()._run(rows)

    Tensor.room = 32
    bodies = [b"1"] * 256
    model = Left()
    model.setup()
    with closing(Executor(model, outlet)) as executor:
        for _ in range(2):
            outlet.gone.clear()
            reply, _ = executor.run(batch_of("predict", *bodies), bodies)
        assert reply.limit is not None


@pytest.mark.parametrize(
    ("fields", "body", "room"),
    [
        ({"allowed_batch_sizes": (8, 16, 64), "rows": [2]}, b"60,60", 100),
        ({"costs": [0.1] * 4, "rows": [4]}, b"0.1,0.1,0.1,0.1", 0.3),
    ],
)
def test_calls_that_cannot_get_smaller_end(
    fields: dict[str, Any], body: bytes, room: float, executor: Executor
) -> None:
    """At the smallest allowed size, or at a cost below 1."""
    Tensor.room = room
    model, reply = run(executor, body, **fields)

    assert (reply.statuses, reply.limit) == ([500], None)
    assert len(model.calls) < 10


def test_the_calls_of_one_request_end_in_time(executor: Executor, monkeypatch: pytest.MonkeyPatch) -> None:
    """Then nothing is learned from it, as it is not known whether a row is too large."""
    Tensor.room = 1.5
    ticks = itertools.count()
    monkeypatch.setattr(time, "perf_counter", lambda: next(ticks) / 100)
    model, reply = run(executor, b",".join([b"1"] * 256), rows=[256], timeout_s=1.0)

    assert (reply.statuses, reply.limit) == ([500], None)
    assert len(model.calls) < 60


def test_rows_that_the_handler_moves_to_the_device_are_freed(executor: Executor) -> None:
    """It puts them in place of what it got."""

    class InPlace(Model):
        def _run(self, rows: list[Any]) -> list[Any]:
            self.calls.append(len(rows))
            self.in_use.append(Tensor.used)
            given = list(rows)
            for at, row in enumerate(given):
                rows[at] = Tensor(row)
            more = Tensor(sum(given))
            return given if more else []

    Tensor.room = 100
    model = InPlace()
    with closing(Executor(model)) as made:
        _, reply = run(made, *[b"1"] * 8, b"60", *[b"1"] * 40)
    assert reply.statuses == [200] * 8 + [500] + [200] * 40


@at_most(100)
@given(
    st.lists(
        st.lists(
            st.sampled_from(["1", "1", "1", "9", str(FITS_NOWHERE), '"quote"']), min_size=1, max_size=90
        ),
        min_size=1,
        max_size=40,
    ),
    st.sampled_from([None, (1, 16, 64)]),
)
@example([["1"] * 256, ['"quote"'], ["1"]], None)
@example([["1"] * 100, ['"quote"']], (8, 64))
@example([*[["1"]] * 31, ['"quote"']], None)
def test_a_request_fails_alone_and_teaches_nothing(
    requests: list[list[str]], sizes: tuple[int, ...] | None
) -> None:
    """Because of a row that fits nowhere, or of an error that quotes what its client writes."""
    Tensor.room = 100
    bodies = [",".join(rows).encode() for rows in requests]
    fails = [not {str(FITS_NOWHERE), '"quote"'}.isdisjoint(rows) for rows in requests]
    fitting = sum(int(row) for rows, fail in zip(requests, fails, strict=True) if not fail for row in rows)
    logging.getLogger("uncork.worker").addFilter(deaf := lambda record: False)
    try:
        with closing(Executor(Model())) as made:
            for _ in range(2):
                _, reply = run(made, *bodies, rows=list(map(len, requests)), allowed_batch_sizes=sizes)
                assert reply.statuses == [500 if fail else 200 for fail in fails]
    finally:
        logging.getLogger("uncork.worker").removeFilter(deaf)
    if fitting <= 100 and sizes is None and not any('"quote"' in rows for rows in requests):
        assert reply.limit is None


def test_what_may_run_once_is_not_repeated_but_teaches(executor: Executor) -> None:
    Tensor.room = 32
    for _ in range(2):
        model, reply = run(executor, *[b"1"] * 64, idempotent=False)
        assert (set(reply.statuses), model.calls) == ({500}, [64])
    assert reply.limit == 32
    _, reply = run(executor, *[b"1"] * 64, idempotent=False)
    assert reply.statuses == [200] * 64


@pytest.mark.parametrize(("api", "pads", "least"), [("predict", False, 85), ("padded", True, 80)])
def test_the_limit_counts_cost(api: str, pads: bool, least: float, executor: Executor) -> None:
    """Of a model that pads, rows times the longest."""
    Tensor.room = 100
    bodies = [b'{"n":%d}' % (1 + at % 9) for at in range(64)]
    costs = [float(1 + at % 9) for at in range(64)]
    for _ in range(6):
        _, reply = run(executor, *bodies, costs=costs, pads=pads, api=api)
        assert reply.statuses == [200] * 64
    assert reply.limit is not None
    assert least <= reply.limit <= 100
    assert reply.memory_failures == 0


def test_calls_have_an_allowed_size_that_fits(executor: Executor) -> None:
    Tensor.room = 31
    for _ in range(4):
        model, reply = run(executor, *[b"1"] * 64, allowed_batch_sizes=(8, 16, 64))
        assert reply.statuses == [200] * 64
    assert set(model.calls) == {16}


def test_a_new_process_begins_with_the_limit_of_the_one_before(executor: Executor) -> None:
    Tensor.room = 30
    model, reply = run(executor, *[b"1"] * 64, fits=28.0)

    assert (model.calls, reply.memory_failures, reply.limit) == ([28, 28, 8], 0, 28)


def test_it_stops_in_time(executor: Executor) -> None:
    """At the timeout the gateway would kill the worker."""
    Tensor.room = 7
    model, reply = run(executor, *[b"1"] * 64, timeout_s=0.0)

    assert (model.calls, set(reply.statuses)) == ([64], {500})


def test_a_stream_is_not_begun_again() -> None:
    """The client may have got some of it."""

    class Streams(Service):
        def setup(self) -> None:
            self.calls = 0

        @api(input=Json(), policy="none")
        def words(self, rows: list[Any]) -> Iterator[str]:
            self.calls += 1
            yield "first"
            raise MemoryError

    service = Streams()
    service.setup()
    with closing(Executor(service, Outlet())) as executor:
        reply, _ = executor.run(batch_of("words", b"1,2", rows=[2]), [b"1,2"])

    assert (reply.statuses, service.calls, reply.limit) == ([500], 1, None)


def test_the_log_has_a_traceback_whose_frames_keep_nothing(caplog: pytest.LogCaptureFixture) -> None:
    Tensor.room = 1
    with closing(Executor(Model())) as executor:
        run_quietly = executor._service
        assert isinstance(run_quietly, Model)
        run_quietly.setup()
        executor.run(batch_of("predict", b"2"), [b"2"])

    assert "CUDA out of memory" in caplog.text
    assert "first = Tensor(sum(sizes) / 2)" in caplog.text or "second = Tensor" in caplog.text
    assert Tensor.used == 0


@pytest.mark.parametrize(("heavy", "most_calls"), [(FITS_NOWHERE, 31), (90, 25), (50, 16)])
def test_heavy_rows_among_light_ones_harm_no_neighbour(
    heavy: int, most_calls: int, executor: Executor
) -> None:
    """Of 64 rows, three are heavy on average, and so many calls are made."""
    Tensor.room = 100
    random_, calls = random.Random(7), 0
    for _ in range(25):
        bodies = [b"%d" % (heavy if random_.random() < 3 / 64 else 1) for _ in range(64)]
        model, reply = run(executor, *bodies)
        calls += len(model.calls)
        for status, body in zip(reply.statuses, bodies, strict=True):
            assert status == (500 if body == b"%d" % FITS_NOWHERE else 200)

    assert calls / 25 <= most_calls


class Array(Tensor):
    """A result on the device."""

    def __array__(self, dtype: object = None, copy: object = None) -> np.ndarray[Any, Any]:
        return np.full(int(self.size), 7.0)


class Returning(Service):
    """Returns arrays on the device."""

    def setup(self) -> None:
        self.in_use: list[float] = []

    def same(self, work: Any) -> Any:
        return work

    def finishing(self, work: Any) -> Any:
        assert isinstance(work, Array), "the last stage gets what the model returns"
        return work

    def _run(self, rows: list[Any]) -> Array:
        self.in_use.append(Tensor.used)
        return Array(len(rows))

    @api(input=Json())
    def predict(self, rows: list[Any]) -> Array:
        return self._run(rows)

    @api(input=Json())
    async def later(self, rows: list[Any]) -> Array:
        return self._run(rows)

    @api(input=Json(), prepare=same)
    def prepared(self, rows: list[Any]) -> Array:
        return self._run(rows)

    @api(input=Json(), finish=finishing)
    def finished(self, rows: list[Any]) -> Array:
        return self._run(rows)


@pytest.mark.parametrize("name", ["predict", "later", "prepared", "finished"])
def test_the_memory_of_results_is_free_once_they_are_copied(name: str) -> None:
    """Before the next call, and before anything waits for the results."""
    Tensor.room = 8
    service = Returning()
    service.setup()
    bodies = [b"1"] * 7
    with closing(Executor(service)) as executor:
        reply, answers = executor.run(batch_of(name, *bodies, limit_rows=3), bodies)
        assert (set(reply.statuses), set(answers)) == ({200}, {b"7.0"})
        assert service.in_use == [0, 0, 0]

        returned = executor.run_example(batch_of(name, *bodies), bodies)
        assert type(returned) is np.ndarray
        assert Tensor.used == 0

        run = executor.in_stages(batch_of(name, *bodies), bodies)
        if run is not None:
            run.call()
            assert Tensor.used == (7 if name == "finished" else 0)
            run.finish()
            assert run.bodies == [b"7.0"] * 7
    assert Tensor.used == 0
