"""The rules that all streaming calls of services follow."""

from __future__ import annotations

from typing import Any

import pytest

from tests.gateway.grpc.fake_stream import FakeConnection, FakeStream
from tests.gateway.running import turns
from uncork_gateway.errors import BadRequest
from uncork_gateway.grpc.interfaces import CallHead
from uncork_gateway.grpc.messages import message
from uncork_gateway.grpc.methods import OpenCalls
from uncork_gateway.grpc.services.streaming import StreamingCall
from uncork_gateway.grpc.statuses import Code

Request: Any = message("grpc.health.v1.HealthCheckRequest")


class Recording(StreamingCall):
    """Notes what it is asked."""

    def __init__(self, stream: FakeStream) -> None:
        self.requests: list[str] = []
        super().__init__(stream, CallHead(b"/service/method"), Request)

    def asked(self, request: Any) -> None:
        """Note the request, or raise an exception as it says."""
        self.requests.append(request.service)
        if request.service == "bad":
            raise BadRequest("bad request")
        if request.service == "fault":
            raise ZeroDivisionError


def ask(call: Recording, name: str) -> None:
    call.message_received(Request(service=name).SerializeToString())


@pytest.mark.parametrize("how", ["end", "cancelled", "reject", "error", "close", "closed before"])
async def test_a_call_that_is_over_is_not_asked(how: str) -> None:
    """The connection may have read more messages by then."""
    calls = OpenCalls(lambda: None)
    if how == "closed before":
        calls.close()
    call = Recording(FakeStream())
    calls.add(call, None)
    ends: list[str] = []
    call.on_end = lambda: ends.append(how)
    match how:
        case "end":
            call.end_received()
        case "cancelled":
            call.cancelled()
        case "reject":
            call.reject(BadRequest("x"))
        case "error":
            ask(call, "bad")
        case "close":
            calls.close()
    before = list(call.requests)
    ask(call, "late")
    call.end_received()
    calls.close()

    assert call.requests == before
    assert ends == ([] if how == "closed before" else [how])


async def test_a_client_that_does_not_read_the_answers_sends_no_more_messages() -> None:
    stream = FakeStream()
    call = Recording(stream)
    stream.unsent_bytes = 70_000
    for _ in range(2):
        call.send(Request(service="answer"))
        assert stream.is_paused
    stream.read_all()
    await turns(2)
    assert not stream.is_paused
    call.send(Request(service="answer"))
    assert not stream.is_paused

    stream.unsent_bytes = 70_000
    call.send(Request(service="answer"))
    call.cancelled()
    stream.read_all()
    await turns(2)
    assert stream.is_paused


async def test_answers_end_when_too_much_of_a_connection_is_unread() -> None:
    """Each call has sent little: there may be a thousand of them."""
    connection = FakeConnection(unsent_bytes=1_000_000)
    stream = FakeStream(connection=connection)
    call = Recording(stream)
    call.send(Request(service="answer"))
    assert not stream.is_finished
    connection.unsent_bytes = 1_100_000
    call.send(Request(service="answer"))

    assert len(stream.messages) == 1
    assert stream.code is Code.RESOURCE_EXHAUSTED
    assert stream.text == "more than 1048576 bytes of responses on this connection are unread; read them"


async def test_a_fault_ends_only_its_call(caplog: pytest.LogCaptureFixture) -> None:
    """The client gets the id of the log line, not the exception."""
    stream, other = FakeStream(), FakeStream()
    call, neighbour = Recording(stream), Recording(other)
    ask(call, "fault")
    ask(neighbour, "fine")

    assert stream.code is Code.INTERNAL
    error_id = stream.text.removeprefix("internal error; error id ")
    assert f"[{error_id}]" in caplog.text
    assert "ZeroDivisionError" in caplog.text
    assert other.code is None
