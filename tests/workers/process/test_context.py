"""The context of a handler."""

import json
import logging
import math
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.workers.run_batch import Outlet, batch_of, run_batch
from uncork_workers.definition.adapters import Json
from uncork_workers.definition.service import Service, api
from uncork_workers.process.batches.execution import Executor
from uncork_workers.process.context import BatchOfRecord, Context, context

log = logging.getLogger("a service")


class Curious(Service):
    worker_index = 3

    def __init__(self) -> None:
        self.seen: list[Context] = []

    @api(input=Json())
    def plain(self, items: list[Any]) -> list[Any]:
        self.seen.append(context())
        log.warning("here")
        return items

    @api(input=Json())
    async def slow(self, items: list[Any]) -> list[Any]:
        self.seen.append(context())
        return items


@pytest.mark.parametrize("to", ["plain", "slow"])
def test_a_handler_knows_its_batch(to: str) -> None:
    """Also for batches in turn on one event loop; outside a batch there is no context."""
    service = Curious()
    executor = Executor(service)
    for name in ("x-1", "x-2"):
        reply, _ = executor.run(batch_of(to, b"1", b"2", id=name), [b"1", b"2"])
        assert reply.statuses == [200, 200]
    executor.close()

    seen = [(one.batch_id, one.api, one.worker_index, one.requests, one.rows) for one in service.seen]
    assert seen == [(name, to, 3, 2, 2) for name in ("x-1", "x-2")]
    assert [one.live for one in service.seen] == [[True, True]] * 2
    assert not any(one.cancelled for one in service.seen)
    with pytest.raises(LookupError, match=r"uncork.context\(\) works only in a handler"):
        context()


class Costly(Service):
    """Records the rows of each call and their costs, and fails on "bad"."""

    def __init__(self) -> None:
        self.calls: list[tuple[list[Any], tuple[float, ...] | None]] = []

    @api(input=Json())
    def plain(self, items: list[Any]) -> list[Any]:
        self.record(items)
        return items

    @api(input=Json())
    async def slow(self, items: list[Any]) -> list[Any]:
        self.record(items)
        return items

    def record(self, items: list[Any]) -> None:
        self.calls.append((items, context().costs))
        if "bad" in items:
            raise ValueError("bad")


def costs_of_calls(*requests: dict[Any, float], to: str = "plain", **fields: Any) -> list[dict[Any, float]]:
    """Run requests of rows and their costs; return rows and costs of each call."""
    service = Costly()
    bodies = [json.dumps(list(rows))[1:-1].encode() for rows in requests]
    costs = [cost for rows in requests for cost in rows.values()]
    run_batch(service, to, *bodies, rows=list(map(len, requests)), costs=costs, **fields)
    assert all(costs is not None and len(rows) == len(costs) for rows, costs in service.calls)
    return [dict(zip(rows, costs or (), strict=True)) for rows, costs in service.calls]


@pytest.mark.parametrize("to", ["plain", "slow"])
def test_a_handler_knows_the_costs_of_its_rows(to: str) -> None:
    """Those of one call, if the batch takes several."""
    requests = [{"a": 1.0, "b": 2.5}, {"c": 4.0}]

    assert costs_of_calls(*requests, to=to) == [{"a": 1, "b": 2.5, "c": 4}]
    assert costs_of_calls(*requests, to=to, limit_rows=4) == [{"a": 1, "b": 2.5}, {"c": 4}]
    assert costs_of_calls(*requests, to=to, allowed_batch_sizes=(1, 2)) == [{"a": 1, "b": 2.5}, {"c": 4}]


def test_copies_that_fill_a_batch_cost_as_much_as_their_row() -> None:
    service = Costly()
    run_batch(service, "plain", b"1", b"2", allowed_batch_sizes=(4,), costs=[2.0, 3.0])

    assert service.calls == [([1, 2, 2, 2], (2, 3, 3, 3))]


def test_an_api_without_a_cost_has_no_costs() -> None:
    service = Costly()
    run_batch(service, "plain", b"1")

    assert service.calls == [([1], None)]


def test_a_handler_knows_how_much_time_is_left() -> None:
    """Counted from the start in the worker to the first deadline; negative if late."""
    service = Curious()
    before = time.monotonic()
    run_batch(service, "plain", b"1", b"2", left_s=[50.0, -5.0])
    after = time.monotonic()

    (seen,) = service.seen
    assert before + 50 <= seen.due[0] <= after + 50
    assert before - 5 <= seen.due[1] <= after - 5
    left_s = seen.deadline_left_s
    assert -5 - (time.monotonic() - before) <= left_s <= -5


def test_where_nobody_waits_there_is_time() -> None:
    batch = Context(batch_id="x", api="plain", worker_index=0, requests=1, rows=1)

    assert batch.deadline_left_s == math.inf


def test_log_lines_say_which_batch_they_are_from(caplog: pytest.LogCaptureFixture) -> None:
    caplog.handler.addFilter(BatchOfRecord())
    log.warning("outside")
    run_batch(Curious(), "plain", b"1", id="x-7")

    assert [getattr(record, "batch_text", None) for record in caplog.records] == ["", " [batch x-7]"]
    assert [getattr(record, "batch", None) for record in caplog.records] == [None, "x-7"]
    assert [getattr(record, "api", None) for record in caplog.records] == [None, "plain"]


class Parametric(Service):
    """Records the rows of each call with their parameters, and fails on "bad"."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, list[tuple[Any, dict[str, Any]]]]] = []

    @api(input=Json(), group_by=("a", "header:b"))
    def predict(self, items: list[Any]) -> list[Any]:
        own = [dict(parameters) for parameters in context().parameters]
        self.calls.append((context().group, list(zip(items, own, strict=True))))
        if "bad" in items:
            raise ValueError("bad")
        return items

    @api(input=Json(), policy="none")
    def stream(self, items: list[Any]) -> Iterator[str]:
        self.calls.append((context().group, [(items[0], dict(context().parameters[0]))]))
        yield "piece"


def parametric_calls(*bodies: bytes, to: str = "predict", **fields: Any) -> Any:
    service = Parametric()
    run_batch(service, to, *bodies, outlet=Outlet(), **fields)
    return service.calls


def test_a_handler_knows_the_group_of_its_batch() -> None:
    """The values of a tuple as a tuple; a header that no request has is None."""
    assert parametric_calls(b"1", b"2", group=b'["a",null]') == [(("a", None), [(1, {}), (2, {})])]
    assert parametric_calls(b"1", group=b'"1"') == [("1", [(1, {})])]
    assert parametric_calls(b"1", group=b"1e999") == [(math.inf, [(1, {})])]
    assert parametric_calls(b"1") == [(None, [(1, {})])]


def test_a_handler_knows_the_parameters_of_its_rows() -> None:
    """Those of each row in a call, also in calls with a part of the batch, and for copies that fill it."""
    p, q = {"beams": 4}, {"text": [1, None]}
    batch: dict[str, Any] = {
        "rows": [2, 1, 1],
        "parameters": [json.dumps(p).encode(), b"", json.dumps(q).encode()],
    }
    bodies = (b"1,2", b"3", b"4")
    rows = [(1, p), (2, p), (3, {}), (4, q)]

    assert parametric_calls(*bodies, **batch) == [(None, rows)]
    assert parametric_calls(*bodies, limit_rows=3, **batch) == [(None, rows[:3]), (None, rows[3:])]
    assert parametric_calls(*bodies, **batch, costs=[1.0] * 4) == [(None, rows)]
    assert parametric_calls(*bodies, **batch, allowed_batch_sizes=(6,)) == [(None, [*rows, (4, q), (4, q)])]
    assert parametric_calls(b"1,2", b"3", rows=[2, 1], limit_rows=2) == [
        (None, [(1, {}), (2, {})]),
        (None, [(3, {})]),
    ]
    _, *parts = parametric_calls(b'"bad"', b"3", b"4", parameters=[b'{"n":0}', b'{"n":3}', b'{"n":4}'])
    assert all(own == {"n": 0 if row == "bad" else row} for _, call in parts for row, own in call)


class Classed(Service):
    """Records the classes of the rows of each call, and fails on "bad"."""

    def __init__(self) -> None:
        self.calls: list[Any] = []

    @api(input=Json(), classes={"interactive": 100, "bulk": None})
    def predict(self, items: list[Any]) -> list[Any]:
        self.calls.append(list(zip(items, context().classes or (), strict=True)))
        if "bad" in items:
            raise ValueError("bad")
        return items


def classed_calls(*bodies: bytes, **fields: Any) -> Any:
    service = Classed()
    run_batch(service, "predict", *bodies, **fields)
    return service.calls


def test_a_handler_knows_the_class_of_each_row() -> None:
    """Also in calls with a part of the batch, and for copies that fill it."""
    bodies, bulk = (b"1,2", b"3", b"4"), {"rows": [2, 1, 1], "bulk": [False, True, True]}
    rows = [(1, "interactive"), (2, "interactive"), (3, "bulk"), (4, "bulk")]
    assert classed_calls(*bodies, rows=[2, 1, 1]) == [[(row, "interactive") for row, _ in rows]]
    assert classed_calls(*bodies, **bulk) == [rows]
    assert classed_calls(*bodies, limit_rows=3, **bulk) == [rows[:3], rows[3:]]
    assert classed_calls(*bodies, allowed_batch_sizes=(5,), **bulk) == [[*rows, (4, "bulk")]]
    _, *parts = classed_calls(b'"bad"', b"3", b"4", bulk=[True, False, True])
    assert all(name == ("interactive" if row == 3 else "bulk") for call in parts for row, name in call)


def test_a_stream_has_the_parameters_of_its_request() -> None:
    assert parametric_calls(b"1", to="stream", parameters=[b'{"a":1}']) == [(None, [(1, {"a": 1})])]
    assert parametric_calls(b"1", to="stream") == [(None, [(1, {})])]


class Reader(Service):
    """Records the rows of each call with their requests, ids and tenants, and fails on "bad"."""

    def __init__(self) -> None:
        self.calls: list[list[tuple[Any, int, str, str | None]]] = []

    @api(input=Json(), headers=("x-tenant", "x-request-id"))
    def predict(self, items: list[Any]) -> list[Any]:
        now = context()
        assert [*now.headers] == ["x-tenant", "x-request-id"]
        ids = [now.request_ids[at] for at in now.request_of_row]
        assert now.headers["x-request-id"] == tuple(ids)
        self.calls.append([*zip(items, now.request_of_row, ids, now.headers["x-tenant"], strict=True)])
        if "bad" in items:
            raise ValueError("bad")
        return items


HEADERS = [{"x-tenant": "a", "x-request-id": "one"}, {"x-request-id": "two"}, {"x-tenant": "c"}]
OF_ROWS = [(1, 0, "one", "a"), (2, 0, "one", "a"), (3, 1, "two", None), (4, 2, "x-7.2", "c")]


def calls_of(*bodies: bytes, **fields: Any) -> list[list[tuple[Any, int, str, str | None]]]:
    service = Reader()
    run_batch(service, "predict", *bodies, id="x-7", **fields)
    return service.calls


def test_a_handler_reads_the_headers_of_its_rows() -> None:
    """Those of each row in a call, also in calls with a part of the batch, and for copies that fill it."""
    batch: dict[str, Any] = {"rows": [2, 1, 1], "headers": HEADERS}
    bodies = (b"1,2", b"3", b"4")
    assert calls_of(*bodies, **batch) == [OF_ROWS]
    assert calls_of(*bodies, **batch, costs=[1.0] * 4) == [OF_ROWS]
    assert calls_of(*bodies, **batch, limit_rows=3) == [OF_ROWS[:3], OF_ROWS[3:]]
    assert calls_of(*bodies, **batch, limit_rows=2) == [OF_ROWS[:2], OF_ROWS[2:]]
    assert calls_of(*bodies, **batch, allowed_batch_sizes=(6,)) == [[*OF_ROWS, *[OF_ROWS[3]] * 2]]
    assert calls_of(b"1,2", b"?", b"4", **batch) == [[*OF_ROWS[:2], OF_ROWS[3]]]
    _, *parts = calls_of(b"1,2", b'"bad"', b"4", **batch)
    known = {1: OF_ROWS[0], 2: OF_ROWS[1], "bad": ("bad", *OF_ROWS[2][1:]), 4: OF_ROWS[3]}
    assert parts
    assert all(row == known[row[0]] for call in parts for row in call)


def test_without_headers_requests_have_ids_of_their_batch() -> None:
    """Also in the warm-up, whose rows have no headers."""
    assert calls_of(b"1", b"2") == [[(1, 0, "x-7.0", None), (2, 1, "x-7.1", None)]]


class Logging(Service):
    @api(input=Json(), headers=("x-request-id",))
    def predict(self, items: list[Any]) -> list[Any]:
        for at, item in enumerate(items):
            with context().row(at):
                log.warning("row %s", item)
        log.warning("done")
        return items


def test_log_lines_say_which_request_they_are_from(caplog: pytest.LogCaptureFixture) -> None:
    """Inside a block for a row of it."""
    caplog.handler.addFilter(BatchOfRecord())
    run_batch(Logging(), "predict", b"1,2", b"3", rows=[2, 1], headers=HEADERS[:2])

    requests = [getattr(record, "request", None) for record in caplog.records]
    assert requests == ["one", "one", "two", None]
