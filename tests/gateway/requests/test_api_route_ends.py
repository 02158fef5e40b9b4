"""API routes: requests that end without a result."""

import asyncio
import logging
import re
from dataclasses import replace
from typing import Any

import pytest

from tests.gateway.client import JSON, Client, Connection, request
from tests.gateway.running import turns
from tests.gateway.stage import RULES, Stage, detail, reason
from uncork_dispatcher import WorkerLost
from uncork_gateway.codecs import Marshalled
from uncork_gateway.dialects.base import HandlerResult
from uncork_gateway.errors import BodyTooLarge
from uncork_gateway.protocols.limits import DEFAULT_LIMITS
from uncork_gateway.telemetry.metrics import ApiTally
from uncork_workers.wire.schema import JSON as JSON_TYPE


@pytest.mark.parametrize(("status", "told"), [(400, 400), (500, 500), (418, 418), (499, 499)])
async def test_the_workers_refusals_are_passed_on(status: int, told: int) -> None:
    """The client gets the worker's status and reason."""
    stage = Stage()
    stage.runner.reply = lambda body: HandlerResult(status if body == b"1" else 200, "é".encode())

    refused, answered = await asyncio.gather(stage.reply(b"1"), stage.reply(b"2"))

    assert detail(refused, told) == "é"
    assert "x-batch-id" not in refused.headers
    assert answered.status == 200
    assert (stage.counted(told), stage.counted(200)) == (1, 1)


async def test_a_reason_that_is_not_utf_8_is_500_for_its_client_alone(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The worker broke its contract; the log says how. The rest of the batch is answered."""
    stage = Stage()
    stage.runner.reply = lambda body: HandlerResult(400 if body == b"1" else 200, b"\xff")

    failed, answered = await asyncio.gather(stage.reply(b"1"), stage.reply(b"2"))

    assert detail(failed, 500).startswith("internal error; error id ")
    assert (answered.status, answered.body) == (200, b"\xff")
    assert (stage.counted(500), stage.counted(200)) == (1, 1)
    assert "UnicodeDecodeError" in caplog.text


@pytest.mark.parametrize(
    ("reply", "error", "status", "counted"),
    [
        (HandlerResult(500, b"oops"), None, 500, {500: 1}),
        (HandlerResult(503, b"my database is down"), None, 503, {503: 1}),
        (HandlerResult(500, b"oops", content_type="text/plain"), None, 500, {500: 1}),
        (HandlerResult(422, b"no"), None, 422, {}),
        (HandlerResult(200, b"1"), None, 200, {}),
        (HandlerResult(200, b"1"), WorkerLost("worker 0 died"), 502, {502: 1}),
        (HandlerResult(200, b"1"), KeyError("ours"), 500, {500: 1}),
    ],
)
async def test_an_error_is_counted_as_one(
    reply: HandlerResult, error: Exception | None, status: int, counted: dict[int, int]
) -> None:
    """A 5xx that is not the gateway's refusal counts; a client's error does not."""
    stage = Stage(rules=replace(RULES, idempotent=False))
    stage.runner.reply, stage.runner.error = lambda body: reply, error

    assert (await stage.reply(b"1")).status == status
    assert stage.metrics.api("echo").errors == counted


async def test_a_refusal_is_not_an_error() -> None:
    """503 and the 504 of a client's own deadline do not count; the 504 of a hanging batch does."""
    impatient = Stage()
    impatient.runner.gate.clear()
    running = impatient.post(Client(b"1", headers=[JSON]))
    await turns()
    late = await impatient.reply(b"2", headers=[JSON, (b"x-request-timeout-ms", b"1")])
    nobody = Stage(workers=0)
    unavailable = await nobody.reply(b"1")
    hanging = Stage(rules=replace(RULES, timeout_s=0.01))
    hanging.runner.gate.clear()
    timed_out = await hanging.reply(b"1")
    running.cancel()

    assert (late.status, reason(late)) == (504, "client_deadline")
    assert (detail(unavailable, 503), reason(unavailable)) == ("no worker is ready", "no_worker")
    assert unavailable.headers["retry-after"] == "1"
    assert (detail(timed_out, 504), reason(timed_out)) == (
        "the batch exceeded the timeout of this API",
        None,
    )
    counted = [stage.metrics.api("echo").errors for stage in (impatient, nobody, hanging)]
    assert counted == [{}, {}, {504: 1}]


async def test_a_client_timeout_that_passes_while_queued_is_504() -> None:
    """The row is not executed; rows of other requests are."""
    stage = Stage(rules=replace(RULES, goal_s=50))
    stage.runner.gate.clear()
    running = stage.post(Client(b"1"))
    await turns()
    queued = stage.post(Client(b"2"))

    hasty = await stage.reply(b"3", headers=[JSON, (b"x-request-timeout-ms", b"20")])
    stage.runner.gate.set()
    await asyncio.gather(running, queued)

    assert detail(hasty, 504) == "the timeout in X-Request-Timeout-Ms expired before the request was executed"
    assert stage.runner.batches == [[b"1"], [b"2"]]


@pytest.mark.parametrize("pieces", [(), (b"[1]",), (b"[1]", b"")])
async def test_a_client_that_leaves_in_the_middle_of_its_body_is_not_answered(
    pieces: tuple[bytes, ...],
) -> None:
    """Nothing is executed for half a body."""
    stage = Stage()
    leaver = Client(*pieces, unfinished=True)
    leaver.leave()

    assert await stage.post(leaver) is None
    assert (stage.counted(499), stage.runner.jobs) == (1, [])


@pytest.mark.parametrize("other", [(b"content-encoding", b"br"), (b"content-type", b"text/csv")])
def test_a_body_that_is_too_large_is_refused_first(other: tuple[bytes, bytes]) -> None:
    """Because the connection closes after this response."""

    async def rejection() -> object:
        return Stage().route.read_head([(b"content-length", b"9" * 12), other], b"/").rejection

    assert isinstance(asyncio.run(rejection()), BodyTooLarge)


class BrokenTally(ApiTally):
    """A tally that fails."""

    def answered(self, *args: Any, **kwargs: Any) -> None:
        raise ZeroDivisionError("a secret of ours")


async def test_a_fault_of_ours_after_the_reply_sends_no_second_reply(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The client would take a second reply for that to its next request."""
    stage = Stage()
    stage.route.tally = BrokenTally()
    connection = Connection(stage.server)
    connection.send(request(b"1"))
    await turns()

    assert [reply.status for reply in connection.replies()] == [200]
    assert not connection.closed
    assert "ZeroDivisionError: a secret of ours" in caplog.text


class BrokenCodec:
    """A codec that fails."""

    accepts = (JSON_TYPE,)
    summary = ""
    one_or_many = False
    limits = DEFAULT_LIMITS

    def decode(self, *args: Any) -> Marshalled:
        raise ZeroDivisionError("a secret of ours")

    marshal = marshal_tensor = marshal_columns = decode


async def test_a_fault_of_ours_is_500_with_an_id(caplog: pytest.LogCaptureFixture) -> None:
    """The client gets an id and no details; the log has the same id and the traceback."""
    stage = Stage(codec=BrokenCodec())
    text = detail(await stage.reply(b"1"), 500)
    assert stage.counted(500) == 1
    told = text

    match = re.fullmatch(r"internal error; error id (\w{12})", told)
    assert match is not None
    (record,) = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert record.getMessage() == f"internal error [{match[1]}]"
    assert "ZeroDivisionError: a secret of ours" in caplog.text
