"""The common part of services' streaming calls: bad messages, cancellation, clients that do not read."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable
from http import HTTPStatus
from typing import Any

from google.protobuf.message import Message

from uncork_gateway.errors import GatewayError
from uncork_gateway.grpc.interfaces import CallHead, CallStream
from uncork_gateway.grpc.messages import parse
from uncork_gateway.grpc.methods import PlainCall
from uncork_gateway.grpc.statuses import CallFailed, Code

# Of answers that the client has not read. Its next messages are read only when it has.
_MOST_UNSENT_BYTES = 64 * 1024
# Of all calls on a connection. Questions are smaller than answers, and need no request of a model.
_MOST_UNSENT_OF_ALL_BYTES = 2**20


class StreamingCall(PlainCall, ABC):
    """A streaming call of a service.

    Args:
        request: the class of the client's messages.
    """

    def __init__(self, stream: CallStream, head: CallHead, request: type[Message]) -> None:
        super().__init__(stream, head)
        self._request = request
        self._until_read: asyncio.Future[None] | None = None
        self.on_end: Callable[[], object] = lambda: None
        """Called when the call is over, for whatever reason."""

    @abstractmethod
    def asked(self, request: Any) -> None:
        """Respond to a message; may raise :class:`GatewayError`, which ends the call."""

    def complete(self) -> None:
        """Handle the end of the client's messages; may raise :class:`GatewayError`."""
        self._stream.finish(Code.OK)
        self._finished(HTTPStatus.OK)

    def send(self, message: Message) -> None:
        """Send a response, or end the call if the client leaves too much on this connection unread."""
        if self._stream.connection.unsent_bytes > _MOST_UNSENT_OF_ALL_BYTES:
            self.reject(_unread())
            return
        self._stream.send(message.SerializeToString())
        if self._stream.unsent_bytes > _MOST_UNSENT_BYTES and self._until_read is None:
            self._stream.pause()
            self._until_read = asyncio.ensure_future(self._resume_when_read())

    async def _resume_when_read(self) -> None:
        await self._stream.sent()
        self._until_read = None
        self._stream.resume()

    # What the connection reports

    def message_received(self, message: bytes) -> None:
        super().message_received(message)
        if self._is_finished:
            return
        try:
            self.asked(parse(self._request, message))
        except Exception as error:
            self.failed(error)

    def end_received(self) -> None:
        if self._is_finished:
            return
        try:
            self.complete()
        except GatewayError as error:
            self.reject(error)

    def _finished(self, status: int, code: Code = Code.OK) -> None:
        super()._finished(status, code)
        if self._until_read is not None:
            self._until_read.cancel()
        self.on_end()


def _unread() -> CallFailed:
    return CallFailed(
        f"more than {_MOST_UNSENT_OF_ALL_BYTES} bytes of responses on this connection are unread; read them",
        Code.RESOURCE_EXHAUSTED,
    )
