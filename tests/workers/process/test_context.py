"""The context of a handler."""

import json
import logging
import math
import time
from typing import Any

import pytest

from uncork_workers.definition.adapters import Json
from uncork_workers.definition.service import Service, api
from uncork_workers.process.batches.execution import Executor
from uncork_workers.process.context import BatchOfRecord, Context, context
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
        bodies = [json.dumps(item).encode() for item in (1, 2)]
        batch = Batch(batch=1, api=to, limit_rows=9, lengths=[1, 1], rows=[1, 1], id=name)
        reply, _ = executor.run(batch, bodies)
        assert reply.statuses == [200, 200]
    executor.close()

    assert service.seen == [
        Context(batch_id=name, api=to, worker_index=3, requests=2, rows=2) for name in ("x-1", "x-2")
    ]
    with pytest.raises(LookupError, match=r"uncork.context\(\) works only in a handler"):
        context()


def test_a_handler_knows_how_much_time_is_left() -> None:
    """Counted from the start in the worker to the first deadline; negative if late."""
    service = Curious()
    batch = Batch(batch=1, api="plain", limit_rows=9, lengths=[1, 1], rows=[1, 1], left_s=[50.0, -5.0])
    before = time.monotonic()
    Executor(service).run(batch, [b"1", b"2"])
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
    Executor(Curious()).run(
        Batch(batch=1, api="plain", limit_rows=9, lengths=[1], rows=[1], id="x-7"), [b"1"]
    )

    assert [getattr(record, "batch_text", None) for record in caplog.records] == ["", " [batch x-7]"]
    assert [getattr(record, "batch", None) for record in caplog.records] == [None, "x-7"]
    assert [getattr(record, "api", None) for record in caplog.records] == [None, "plain"]
