"""Which class a request names, in headers and in parameters."""

import asyncio
import json
import math
from typing import Any

import pytest

from tests.gateway.client import JSON, Client
from tests.gateway.exposed import registry_of
from tests.gateway.running import turns
from tests.gateway.stage import Stage, detail, reason
from uncork_dispatcher import ApiRules
from uncork_gateway.codecs import make_codec
from uncork_gateway.dialects import Native
from uncork_gateway.errors import BadRequest
from uncork_gateway.requests.classes import Classes
from uncork_gateway.telemetry.metrics import ApiTally

CLASSES = Classes(("interactive", "bulk"), ApiTally())
BULK = (b"X-Request-Class", b"bulk")


@pytest.mark.parametrize(
    ("named", "parameters", "is_bulk"),
    [
        (None, None, False),
        (b"interactive", None, False),
        (b"bulk", None, True),
        (None, {}, False),
        (None, {"priority": 0}, False),
        (None, {"priority": 1}, False),
        (None, {"priority": 2}, True),
        (None, {"priority": None, "beams": [1]}, False),
        (None, {"priority": 2, "beams": math.nan}, True),
        (b"bulk", {"priority": 0}, True),
        (b"bulk", {"priority": 2}, True),
        (b"interactive", {"priority": 1}, False),
    ],
)
def test_headers_and_priorities_name_a_class(named: bytes | None, parameters: Any, is_bulk: bool) -> None:
    headers = [(b"x-other", b"1")] + ([] if named is None else [(b"x-request-class", named)])
    text = b"" if parameters is None else json.dumps(parameters).encode()
    assert CLASSES.is_bulk(CLASSES.of_headers(headers), text) is is_bulk


def classed(**rules: Any) -> Stage:
    stage = Stage(rules=ApiRules(name="echo", goal_s=50, bulk_goal_s=100, **rules))
    stage.metrics.set_classes("echo", ("interactive", "bulk"))
    stage.route.classes = Classes(("interactive", "bulk"), stage.metrics.bulk("echo"))
    return stage


@pytest.mark.parametrize("name", [b"batch", b"Bulk", b"", b"b\xff", b"bulk, bulk"])
async def test_an_unknown_class_is_refused_with_the_names(name: bytes) -> None:
    reply = await classed().reply(b"[1]", headers=[JSON, (b"x-request-class", name)])
    assert detail(reply, 400).startswith("X-Request-Class must be interactive or bulk, got ")


def test_a_long_name_of_a_class_is_quoted_in_part() -> None:
    with pytest.raises(BadRequest, match=f"got '{'b' * 100}'$"):
        CLASSES.of_headers([(b"x-request-class", b"b" * 4000)])


async def test_without_classes_the_header_means_nothing() -> None:
    stage = Stage()
    assert (await stage.reply(b"[1]", headers=[JSON, (b"x-request-class", b"what")])).status == 200
    assert stage.counted(200) == 1


async def test_the_first_class_displaces_bulk_from_a_full_queue() -> None:
    stage = classed(max_queue_requests=1)
    stage.runner.gate.clear()
    running = stage.post(Client(b"[0]", headers=[JSON]))
    await turns()
    bulk = stage.post(Client(b"[1]", headers=[JSON, BULK]))
    await turns()
    first = stage.post(Client(b"[2]", headers=[JSON]))
    await turns()
    displaced = await bulk
    assert displaced is not None
    assert "a request of the first class displaced this one" in detail(displaced, 503)
    assert reason(displaced) == "displaced"
    assert int(displaced.headers["retry-after"]) >= 1
    stage.runner.gate.set()
    replies = await asyncio.gather(running, first)
    assert [reply.status for reply in replies if reply is not None] == [200, 200]
    labels = {"api": "echo", "reason": "displaced", "class": "bulk"}
    assert registry_of(stage.metrics).get_sample_value("uncork_shed_total", labels) == 1


ROWS = list(range(8))


def taught(**rules: Any) -> Stage:
    """Return a stage with an input of several rows that knows batch times: 1 s, and 0.1 s for each row."""
    stage = classed(max_batch_rows=32, **rules)
    stage.route.dialect = Native(make_codec({"kind": "ndarray", "shape": []}))
    stage.dispatcher.profile("echo", 0, [(rows, 1 + 0.1 * rows) for rows in (1, 8, 32)] * 10)
    return stage


async def test_large_bulk_requests_are_divided_and_joined() -> None:
    stage = taught()
    reply = await stage.reply(json.dumps(ROWS).encode(), headers=[JSON, BULK])
    assert json.loads(reply.body) == ROWS
    assert stage.runner.batches == [[b"0,1", b"2,3", b"4,5", b"6,7"]]
    first = await stage.reply(json.dumps(ROWS).encode())
    assert json.loads(first.body) == ROWS
    assert len(stage.runner.batches[-1]) == 1


async def test_a_divided_request_is_refused_once() -> None:
    """Though a request of the first class displaces three parts of it."""
    stage = taught(max_queue_rows=8)
    stage.runner.gate.clear()
    running = stage.post(Client(b"[0]", headers=[JSON]))
    await turns()
    bulk = stage.post(Client(json.dumps(ROWS).encode(), headers=[JSON, BULK]))
    await turns()
    assert stage.dispatcher.unanswered == 5
    first = stage.post(Client(b"[1,2,3,4,5]", headers=[JSON]))
    displaced = await bulk
    assert displaced is not None
    assert (displaced.status, reason(displaced)) == (503, "displaced")
    stage.runner.gate.set()
    replies = await asyncio.gather(running, first)
    assert [reply.status for reply in replies if reply is not None] == [200, 200]
    labels = {"api": "echo", "reason": "displaced", "class": "bulk"}
    assert registry_of(stage.metrics).get_sample_value("uncork_shed_total", labels) == 1
