"""Batches as calls to model servers: what is sent, who gets which reply, and failures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from tests.gateway.backends.lines import TEXT, bodies, sent, shout
from tests.gateway.backends.model_servers.fake_server import Call, Reply
from tests.gateway.backends.model_servers.merged_stage import NOW, stage
from tests.gateway.running import turns
from tests.loops import HANG_S
from uncork_dispatcher import BatchResult, WorkerLost
from uncork_gateway.backends.model_servers.merged_calls import Part
from uncork_gateway.backends.model_servers.server import ServerResponse
from uncork_gateway.errors import BadGateway
from uncork_gateway.protocols.wire import Content


@pytest.mark.parametrize("status", [201, 301, 401, 403, 404, 405])
async def test_any_other_answer_is_asked_for_alone(status: int) -> None:
    async with stage() as on:
        ran = await on.run(sent("a", part=True), sent(str(status)), sent("b"))

        assert bodies(ran.results) == ["A", f"{status} no: {status}", "200 B"]
        assert (ran.status, len(on.asked)) == ("failed", 4)


async def test_headers_that_tell_clients_what_to_do_are_for_all() -> None:
    kept = (
        (b"retry-after", b"0"),
        (b"www-authenticate", b"Bearer"),
        (b"location", b"/there"),
    )
    dropped = (
        *((b"content-type", b"application/octet-stream"), (b"inference-header-content-length", b"2")),
        *((b"content-encoding", b"br"), (b"set-cookie", b"a=1"), (b"x-request", b"5"), (b"etag", b"1")),
    )

    async with stage(lambda call: Reply(b"\x00", 503, kept + dropped)) as on:
        for result in (await on.run(sent("a"), sent("b"))).results:
            assert isinstance(result, ServerResponse)
            assert result.headers == ((b"content-type", b"application/json"), *kept)
        [alone] = (await on.run(sent("a"))).results
        assert alone == ServerResponse(503, kept + dropped, b"\x00")


# Replies that cannot be split


def one_line(call: Call) -> Reply:
    """A model without batching: it has one answer for many rows."""
    return Reply(b"-".join(call.body.split()), 200, (TEXT, (b"date", b"x"), (b"x-of-the-call", b"1")))


async def test_a_reply_that_cannot_be_dealt_out_is_asked_for_one_by_one(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Each request is sent unchanged and gets the whole answer. The log says so once."""
    async with stage(one_line) as on:
        for _ in range(2):
            ran = await on.run(sent("a b"), sent("c", expires_at=NOW + 2))
            headers = (TEXT, (b"x-of-the-call", b"1"))
            assert ran == BatchResult(
                [ServerResponse(200, headers, b"a-b"), ServerResponse(200, headers, b"c")], "failed"
            )

        merged, first, second = on.server.calls[:3]
        assert (merged.body, first.body, second.body) == (b"a\nb\nc", b"a b", b"c")
        assert first.target == b"/shout?loud=1"
        assert first.header(b"x-of") == b"a b"
        assert first.header(b"x-request-timeout-ms") is None
        assert first.header(b"authorization") is None  # the client sent none
        assert first.header(b"host") != b"proxy"
        assert second.header(b"x-request-timeout-ms") == b"2000"
    assert caplog.messages == [
        "'/shout': cannot split the response to a merged call: it has 1 lines;"
        " sending its requests individually, without batching"
    ]


async def test_reasons_that_alternate_are_logged_once_each(caplog: pytest.LogCaptureFixture) -> None:
    """Two models whose replies cannot be split would fill the log otherwise."""
    async with stage(one_line) as on:
        for target in (b"/one", b"/two") * 3:
            await on.run(sent("a b")._replace(target=target))
    assert [message.split("'")[1] for message in caplog.messages] == ["/one", "/two"]


async def test_clients_cannot_fill_the_log(caplog: pytest.LogCaptureFixture) -> None:
    """Whatever their queries and paths are, or what they make a server answer."""
    long = b"/" + b"x" * 99
    async with stage(one_line) as on:
        for number in range(3):
            await on.run(sent("a b")._replace(target=long + b"%d?%d" % (number, number)))
        assert [message.split("'")[1] for message in caplog.messages] == [long.decode()]
        for number in range(102):
            await on.run(sent("a b")._replace(target=b"/%d" % number))
        assert len(caplog.messages) == 100


async def test_one_request_alone_is_asked_again_as_it_came() -> None:
    """Merging may have changed too much."""
    async with stage(one_line) as on:
        assert bodies((await on.run(sent("a b"))).results) == ["200 a-b"]
        assert on.asked == ["a\nb", "a b"]


async def test_a_part_of_a_request_is_asked_for_alone() -> None:
    """It has no original; if its own reply is invalid too, the client gets that error."""
    async with stage(one_line) as on:
        ran = await on.run(sent("a", part=True), sent("b c", part=True), sent("d"))

        assert bodies(ran.results) == ["A".lower(), "502 it has 1 lines", "200 d"]
        assert isinstance(ran.results[1], BadGateway)
        assert ran.status == "failed"
        assert on.asked == ["a\nb\nc\nd", "a", "b\nc", "d"]


async def test_a_part_that_is_refused_alone_gets_that_answer() -> None:
    def script(call: Call) -> Reply:
        return Reply(b"", 200) if b"\n" in call.body else shout(call)

    async with stage(script) as on:
        ran = await on.run(sent("400", part=True), sent("404", part=True), sent("a", part=True))
        assert bodies(ran.results) == ["400 no: 400", "404 no: 404", "A"]


async def test_nothing_is_asked_again_if_that_could_do_harm() -> None:
    """The call was executed and must not be repeated."""
    async with stage(one_line, idempotent=False) as on:
        ran = await on.run(sent("a"), sent("b"))
        told = (
            "the response of the model server to a call with the requests of several clients cannot be split"
        )
        assert bodies(ran.results) == [f"502 {told}"] * 2
        assert len(on.asked) == 1


@pytest.mark.parametrize("idempotent", [True, False])
@pytest.mark.parametrize("status", [201, 202, 203, 204, 206])
async def test_a_success_without_all_results_is_for_no_request_of_several(
    status: int, idempotent: bool
) -> None:
    """Nor for a part of one, whose client would take it for the whole. A request alone gets it as it is."""
    async with stage(lambda call: Reply(b"x" * (status != 204), status), idempotent=idempotent) as on:
        told = f"502 the model server returned {status} to a merged call"
        alone = f"{status} {'x' * (status != 204)}"
        assert bodies((await on.run(sent("a"), sent("b"))).results) == [alone if idempotent else told] * 2
        assert bodies((await on.run(sent("a", part=True), sent("b", part=True))).results) == [told] * 2
        assert bodies((await on.run(sent("a", part=True))).results) == [told]
        assert bodies((await on.run(sent("a"))).results) == [alone]


# Failures


async def test_a_connection_that_breaks_in_a_search_loses_the_batch() -> None:
    async with stage() as on:
        batch = [sent("a"), sent("400")]
        on.server.script = lambda call: Reply(b"", missing=1) if b"\n" not in call.body else shout(call)
        with pytest.raises(WorkerLost):
            await on.run(*batch)


async def test_a_fault_of_ours_ends_the_batch() -> None:
    class BrokenWire:
        def merge(self, requests: Sequence[Any]) -> Content:
            raise KeyError("ours")

    async with stage() as on:
        with pytest.raises(KeyError, match="ours"):
            await on.run(sent("a")._replace(wire=BrokenWire()))  # type: ignore[arg-type]
        assert (await on.run(sent("b"))).results == [Part(b"B")]
        assert on.slots.out == [1]


async def test_a_wire_that_deals_out_too_little_is_a_fault_of_ours() -> None:
    """No request gets the answer to another."""

    class ShortWire(type(sent("a").wire)):  # type: ignore[misc]
        def split(self, reply: Content, requests: Sequence[Any]) -> list[bytes]:
            return [b"A"]

    async with stage() as on:
        with pytest.raises(ValueError, match="argument 2 is longer"):
            await on.run(sent("a")._replace(wire=ShortWire()), sent("b"))


@pytest.mark.parametrize("begun", [True, False])
async def test_a_call_for_which_nobody_waits_ends(begun: bool) -> None:
    """The server sees that the connection has closed, or nothing at all; its slot is idle again."""
    async with stage(lambda call: None) as on:
        ended = on.start(sent("a"), sent("b"))
        if begun:
            await on.server.called.wait()
        on.leave()
        outcome = await ended
        if begun:
            await on.server.hung_up.wait()
        assert isinstance(outcome, BatchResult)
        assert (outcome.status, len(on.asked)) == ("cancelled", begun)

        on.server.script = shout
        assert (await on.run(sent("c"))).results == [Part(b"C")]
        assert on.slots.out == [1]


async def test_a_call_for_which_one_client_waits_goes_on() -> None:
    async with stage() as on:
        ended = on.start(sent("a"), sent("b"))
        on.batch.requests[1].waiter = ended
        on.leave()
        assert await ended == BatchResult([Part(b"A"), Part(b"B")], "worked")


async def test_no_further_call_is_made_for_clients_who_have_left() -> None:
    """A call of several fails; its halves would be next."""
    async with stage(lambda call: None) as on:
        on.server.script = lambda call: Reply(b"no", 500) if len(call.body) > 3 else None
        ended = on.start(*map(sent, "abcd"))
        while len(on.asked) < 2:
            await turns()
        on.leave()
        await ended
        assert on.asked == ["a\nb\nc\nd", "a\nb"]


async def test_a_slot_is_idle_when_a_server_that_goes_on_would_have_ended() -> None:
    async with stage(lambda call: None) as on:
        ended = on.start(sent("a"), predicted_s=0.01)
        await on.server.called.wait()
        on.leave()
        assert isinstance(await ended, BatchResult)

        ended = on.start(sent("b"), predicted_s=2 * HANG_S)
        on.server.hung_up.clear()
        while len(on.asked) < 2:
            await turns()
        on.leave()
        await on.server.hung_up.wait()
        await turns()
        assert not ended.done()
        on.merged.abandon(7, 1)
        on.slots.out.remove(1)
        assert await on.slots.number(1) == [2]


async def test_a_batch_that_is_abandoned_hangs_up() -> None:
    async with stage(lambda call: None) as on:
        ended = on.start(sent("a"))
        await on.server.called.wait()
        on.merged.abandon(7, 1)
        on.slots.out.remove(1)
        await on.server.hung_up.wait()
        assert await on.slots.number(1) == [2]
        assert not ended.done()

        on.server.script = shout
        assert (await on.run(sent("b"))).results == [Part(b"B")]


async def test_a_batch_can_be_abandoned_before_it_has_begun() -> None:
    async with stage() as on:
        ended = on.start(sent("a"))
        on.merged.abandon(7, 1)
        on.slots.out.remove(1)
        assert await on.slots.number(1) == [2]
        await turns()
        assert (ended.done(), on.asked) == (False, [])


async def test_closing_cancels_what_runs() -> None:
    async with stage(lambda call: None) as on:
        ended = on.start(sent("a"))
        await on.server.called.wait()
        await on.merged.close()
        await on.server.hung_up.wait()
        assert not ended.done()
