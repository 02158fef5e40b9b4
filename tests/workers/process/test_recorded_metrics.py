"""Metrics that handlers record with their context."""

from collections.abc import Iterator, Sequence
from contextlib import closing
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from tests.workers.run_batch import Outlet, batch_of, run_batch
from uncork_workers.definition.adapters import Json
from uncork_workers.definition.service import Service, api
from uncork_workers.process.batches.execution import Executor
from uncork_workers.process.context import context
from uncork_workers.process.recorded_metrics import RecordedMetrics
from uncork_workers.wire.frames import FrameDecoder, encode_frame
from uncork_workers.wire.messages import Reply


class Counting(Service):
    """Counts and observes its rows, and then fails on "bad"."""

    @api(input=Json())
    def predict(self, items: list[Any]) -> list[Any]:
        self.record(items)
        return items

    @api(input=Json())
    async def slow(self, items: list[Any]) -> list[Any]:
        self.record(items)
        return items

    @api(input=Json(), policy="none")
    def stream(self, items: list[Any]) -> Iterator[Any]:
        self.record(items)
        yield items[0]

    def record(self, items: list[Any]) -> None:
        context().count("calls")
        for item in items:
            context().count("rows", 2, kind=type(item).__name__)
            context().observe("sizes", len(str(item)))
        if "bad" in items:
            raise ValueError("bad")


def counted(reply: Reply) -> dict[Any, float]:
    return {(name, *labels.items()): amount for name, labels, amount in reply.counts}


@pytest.mark.parametrize("to", ["predict", "slow", "stream"])
def test_a_reply_has_what_its_batch_recorded(to: str) -> None:
    with closing(Executor(Counting(), Outlet())) as executor:
        for _ in range(2):
            reply, _ = executor.run(batch_of(to, b"1,22", rows=[2]), [b"1,22"])
            assert counted(reply) == {("calls",): 1, ("rows", ("kind", "int")): 4}
            assert (reply.observed, reply.dropped_metrics) == ({"sizes": [1, 2]}, 0)


def test_calls_of_one_batch_add_up() -> None:
    reply, _ = run_batch(Counting(), "predict", b"1,2,3", b"4", rows=[3, 1], limit_rows=2)

    assert counted(reply) == {("calls",): 2, ("rows", ("kind", "int")): 8}


def test_calls_that_fail_record_nothing() -> None:
    """Parts of a failed batch that succeed count once, whatever was tried before."""
    reply, _ = run_batch(Counting(), "predict", b"1", b"2", b'"bad"', b"4", b"5")

    assert reply.statuses == [200, 200, 500, 200, 200]
    assert counted(reply)["rows", ("kind", "int")] == 8
    assert ("rows", ("kind", "str")) not in counted(reply)
    assert sorted(reply.observed["sizes"]) == [1] * 4
    alone, _ = run_batch(Counting(), "predict", b'"bad"')
    assert (alone.counts, alone.observed) == ([], {})


def test_what_is_refused_is_not_recorded() -> None:
    metrics = RecordedMetrics()
    with pytest.raises(ValueError, match=r"got -1$"):
        metrics.count("tokens", -1, {})
    with pytest.raises(ValueError, match=r"got inf$"):
        metrics.observe("sizes", float("inf"))

    assert not metrics.counts
    assert not metrics.observed


def test_numbers_and_texts_may_be_of_any_type() -> None:
    """As long as they are numbers and texts: what NumPy and others derive from them is sent like them."""
    metrics = RecordedMetrics()
    for amount in (np.float64(2), np.float32(2), np.int64(2), Fraction(2)):
        metrics.count("tokens", amount, {"kind": np.str_("a")})  # type: ignore[arg-type]
        metrics.observe("sizes", amount)  # type: ignore[arg-type]
    for wrong in ("\ud800", b"a", None):
        with pytest.raises(ValueError, match="takes a str of at most"):
            metrics.count("tokens", 1, {"kind": wrong})  # type: ignore[dict-item]
    half = np.float16
    for number in (np.bool_(True), True, "1", 1j, None, half("inf"), -half("inf"), half("nan"), 10**400):
        with pytest.raises(ValueError, match="takes a number from"):
            metrics.observe("sizes", number)  # type: ignore[arg-type]

    reply, _ = run_batch(Counting(), "predict", b"1")
    [frame] = FrameDecoder().feed(encode_frame(metrics.added_to(reply)))

    assert isinstance(frame.message, Reply)
    assert frame.message.counts == [("tokens", {"kind": "a"}, 8.0)]
    assert frame.message.observed == {"sizes": [2.0] * 4}


def test_a_total_stays_within_what_the_gateway_accepts() -> None:
    metrics = RecordedMetrics()
    for _ in range(3):
        metrics.count("flops", 0.6e15, {})

    assert (metrics.counts, metrics.dropped) == ({("flops", ()): 0.6e15}, 2)


class Growing(dict[Any, Any]):
    """A dict to which another thread adds while one iterates over it."""

    def __iter__(self) -> Iterator[Any]:
        for key in super().__iter__():
            yield key
            self["late", ()] = 1.0

    def items(self) -> Any:
        return ((key, self[key]) for key in self)


def test_a_task_that_outlives_its_batch_may_record_during_the_reply() -> None:
    metrics = RecordedMetrics(counts=Growing({("rows", ()): 2.0}), observed=Growing({"sizes": [1.0]}))
    state = metrics.copy()
    assert state is not None
    metrics.observe("sizes", 2.0)
    reply, _ = run_batch(Counting(), "predict", b"1")

    assert metrics.added_to(reply).counts == [("rows", {}, 2.0)]
    assert (state.counts, state.observed) == ({("rows", ()): 2.0}, {"sizes": [1.0]})


def test_a_batch_records_a_bounded_number() -> None:
    metrics = RecordedMetrics()
    for number in range(2000):
        metrics.count("tokens", 1, {"user": str(number)})
        metrics.observe("sizes", -number)

    assert (len(metrics.counts), len(metrics.observed["sizes"])) == (100, 1000)
    assert metrics.dropped == 1900 + 1000


class Staged(Service):
    """Counts in its handler and observes in its last stage, which fails on "bad"."""

    def label(self, results: list[Any]) -> list[Any]:
        context().observe("labels", len(results))
        if "bad" in results:
            raise ValueError("bad")
        return results

    @api(input=Json(), finish=label)
    def predict(self, items: list[Any]) -> list[Any]:
        context().count("rows", len(items))
        return items


@pytest.mark.parametrize(("bodies", "rows"), [((b"1", b"2"), 2), ((b"1", b'"bad"'), 1)])
def test_stages_record_for_their_batch(bodies: Sequence[bytes], rows: int) -> None:
    """If the last one fails, what the others have recorded counts no more."""
    with closing(Executor(Staged())) as executor:
        run = executor.in_stages(batch_of("predict", *bodies), bodies)
        assert run is not None
        for stage in (run.prepare, run.call, run.finish):
            stage()
        if run.error is not None:
            run.answer_parts()
        reply = run.reply()

    assert (counted(reply), sum(reply.observed["labels"])) == ({("rows",): rows}, rows)
