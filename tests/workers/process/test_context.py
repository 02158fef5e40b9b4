"""The context of a handler."""

import logging
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import pytest

from tests.workers.run_batch import Outlet, batch_of, run_batch
from uncork_workers.definition.adapters import Json
from uncork_workers.definition.service import Service, api
from uncork_workers.process.batches.execution import Executor
from uncork_workers.process.context import Context, add_batch, context
from uncork_workers.wire.messages import Batch

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


def test_log_lines_name_the_span_of_their_batch(caplog: pytest.LogCaptureFixture) -> None:
    caplog.handler.addFilter(add_batch)
    run_batch(Curious(), "plain", b"1", trace=("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", ""))

    [record] = caplog.records
    ids = [getattr(record, name, None) for name in ("trace_id", "span_id")]
    assert ids == ["0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"]


def test_where_nobody_waits_there_is_time() -> None:
    batch = Context(worker_index=0, _batch=Batch(0, "plain", 1, lengths=[1], rows=[1]))

    assert batch.deadline_left_s == math.inf


def test_log_lines_say_which_batch_they_are_from(caplog: pytest.LogCaptureFixture) -> None:
    caplog.handler.addFilter(add_batch)
    log.warning("outside")
    run_batch(Curious(), "plain", b"1", id="x-7")

    assert [getattr(record, "batch_text", None) for record in caplog.records] == ["", " [batch x-7]"]
    assert [getattr(record, "batch", None) for record in caplog.records] == [None, "x-7"]
    assert [getattr(record, "api", None) for record in caplog.records] == [None, "plain"]


class Row(NamedTuple):
    """What a handler knows of a row: its request with its id and a header, parameters, class, and cost."""

    item: Any
    request: int
    id: str
    tenant: str | None = None
    parameters: Mapping[str, Any] = {}
    kind: str = "interactive"
    cost: float | None = None


class Recording(Service):
    """Records the group and the rows of each call, and fails on "bad"."""

    def __init__(self) -> None:
        self.others: list[Any] = []
        self.calls: list[list[Row]] = []

    @api(
        input=Json(),
        group_by=("a", "header:b"),
        classes={"interactive": 100, "bulk": None},
        headers=("x-tenant", "x-request-id"),
    )
    def predict(self, items: list[Any]) -> list[Any]:
        now = context()
        ids = [now.request_ids[at] for at in now.request_of_row]
        assert [*now.headers] == ["x-tenant", "x-request-id"]
        assert now.headers["x-request-id"] == tuple(ids)
        tenants, parameters, classes = now.headers["x-tenant"], map(dict, now.parameters), now.classes or ()
        costs: Sequence[float | None] = now.costs or [None] * len(items)
        self.others.append(now.group)
        columns = items, now.request_of_row, ids, tenants, parameters, classes, costs
        self.calls.append([Row(*row) for row in zip(*columns, strict=True)])
        if "bad" in items:
            raise ValueError("bad")
        return items

    @api(input=Json(), policy="none", headers=("x-tenant",))
    def stream(self, items: list[Any]) -> Iterator[str]:
        self.others.append((dict(context().parameters[0]), dict(context().headers)))
        yield "piece"


def recorded(*bodies: bytes, to: str = "predict", **fields: Any) -> Recording:
    service = Recording()
    run_batch(service, to, *bodies, outlet=Outlet(), id="x-7", **fields)
    return service


@pytest.mark.parametrize(
    ("group", "value"), [(b'["a",null]', ("a", None)), (b'"1"', "1"), (b"1e999", math.inf), (None, None)]
)
def test_a_handler_knows_the_group_of_its_batch(group: bytes | None, value: Any) -> None:
    """The values of a tuple as a tuple; a header that no request has is None."""
    assert recorded(b"1", b"2", group=group).others == [value]


HEADERS = [{"x-tenant": "a", "x-request-id": "one"}, {"x-request-id": "two"}, {"x-tenant": "c"}]
REQUESTS: dict[str, Any] = {
    "rows": [2, 1, 1],
    "parameters": [b'{"beams":4}', b"", b'{"text":[1,null]}'],
    "bulk": [False, True, True],
    "headers": HEADERS,
}
OF_ROWS = [
    Row(1, 0, "one", "a", {"beams": 4}),
    Row(2, 0, "one", "a", {"beams": 4}),
    Row(3, 1, "two", None, {}, "bulk"),
    Row(4, 2, "x-7.2", "c", {"text": [1, None]}, "bulk"),
]


@pytest.mark.parametrize("costs", [None, [1.0, 2.5, 3.0, 4.0]])
@pytest.mark.parametrize(
    ("bodies", "fields", "calls"),
    [
        ([b"1,2", b"3", b"4"], {}, [[0, 1, 2, 3]]),
        ([b"1,2", b"3", b"4"], {"allowed_batch_sizes": (1, 3)}, [[0, 1, 2], [3]]),
        ([b"1,2", b"3", b"4"], {"allowed_batch_sizes": (6,)}, [[0, 1, 2, 3, 3, 3]]),
        ([b"1,2", b"?", b"4"], {}, [[0, 1, 3]]),
    ],
)
def test_a_handler_knows_what_belongs_to_its_rows(
    bodies: list[bytes], fields: dict[str, Any], calls: list[list[int]], costs: list[float] | None
) -> None:
    """Also in calls with a part of the batch, and for copies that fill it."""
    rows = [row._replace(cost=cost) for row, cost in zip(OF_ROWS, costs or (None,) * 4, strict=True)]

    service = recorded(*bodies, **REQUESTS, **fields, costs=costs)

    assert service.calls == [[rows[at] for at in call] for call in calls]


def test_a_handler_knows_what_belongs_to_the_rows_of_a_part() -> None:
    _, *parts = recorded(b"1,2", b'"bad"', b"4", **REQUESTS).calls
    known = {row.item: row for row in (*OF_ROWS, OF_ROWS[2]._replace(item="bad"))}
    assert parts
    assert all(row == known[row.item] for call in parts for row in call)


def test_a_batch_without_them_has_defaults() -> None:
    """Also in the warm-up."""
    assert recorded(b"1,2", b"3", rows=[2, 1], limit_rows=2).calls == [
        [Row(1, 0, "x-7.0"), Row(2, 0, "x-7.0")],
        [Row(3, 1, "x-7.1")],
    ]


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        (b'{"n":%b}' % (b"7" * 5000), "4300 digits"),
        (b'{"n":%b%b}' % (b"[" * 100_000, b"]" * 100_000), "it is nested too deeply"),
        (b'{"\\ud800":1}', "half of a character"),
    ],
)
def test_parameters_that_cannot_be_read_are_an_error_of_their_client(wrong: bytes, why: str) -> None:
    """The gateway checks only their structure, and other requests of the batch run."""
    service = Recording()
    reply, answers = run_batch(service, "predict", b"1", b"2", b"3", parameters=[b"", wrong, b'{"t":NaN}'])

    assert reply.statuses == [200, 400, 200]
    assert answers[1].decode().startswith("the parameters cannot be read: ")
    assert why in answers[1].decode()
    assert b"sys." not in answers[1]
    assert [[row.item for row in call] for call in service.calls] == [[1, 3]]


class Popping(Service):
    @api(input=Json())
    def predict(self, rows: list[Any]) -> list[Any]:
        parameters: Sequence[Any] = context().parameters
        popped = [[one.pop("t", None), one["o"].pop() if "o" in one else None] for one in parameters]
        if "bad" in rows:
            raise ValueError("a bad row")
        return popped


def test_a_handler_may_change_the_parameters_of_a_row() -> None:
    """Neither the other rows of the request nor a second run see it."""
    bodies = [b'"bad"', b"1,2", b"3", b"4"]
    parameters = [b'{"t":2}', b'{"t":3,"o":[5]}', b"", b'{"t":4}']

    reply, answers = run_batch(
        Popping(), "predict", *bodies, rows=[1, 2, 1, 1], parameters=parameters, allowed_batch_sizes=[8]
    )

    assert reply.statuses == [500, 200, 200, 200]
    assert answers[1:] == [b"[3,5],[3,5]", b"[null,null]", b"[4,null]"]


def test_a_stream_has_the_parameters_and_headers_of_its_request() -> None:
    stream = recorded(b"1", to="stream", parameters=[b'{"a":1}'], headers=[{"x-tenant": "t"}])
    assert stream.others == [({"a": 1}, {"x-tenant": ("t",)})]
    assert recorded(b"1", to="stream").others == [({}, {"x-tenant": (None,)})]


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
    caplog.handler.addFilter(add_batch)
    run_batch(Logging(), "predict", b"1,2", b"3", rows=[2, 1], headers=HEADERS[:2])

    requests = [getattr(record, "request", None) for record in caplog.records]
    assert requests == ["one", "one", "two", None]
