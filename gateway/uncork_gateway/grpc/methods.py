"""The methods of a gRPC port: opens the call for each path, and checks API keys."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Mapping
from http import HTTPStatus
from types import MappingProxyType
from typing import Any
from weakref import WeakKeyDictionary

from google.protobuf.message import Message

from uncork_gateway.auth import REFUSAL, AcceptedKeys
from uncork_gateway.errors import CLIENT_GONE, GatewayError, draining, unexpected
from uncork_gateway.grpc.interfaces import Call, CallHead, CallStream, OpenCall
from uncork_gateway.grpc.messages import parse
from uncork_gateway.grpc.statuses import CallFailed, Code, code_of, trailers_of
from uncork_gateway.telemetry.access_log import log_request

Answer = Callable[[Any], Message | Awaitable[Message]]
"""Returns the response to a message, without the dispatcher; may raise :class:`GatewayError`."""

_REFUSED = CallFailed(REFUSAL, Code.UNAUTHENTICATED)
SMALL_MESSAGE_BYTES = 8 * 1024
"""The largest message of a method that needs no dispatcher: these carry names, and some need no API key."""


class OpenCalls:
    """The calls that clients may keep open indefinitely: all that do not take one message."""

    def __init__(self, keys: AcceptedKeys) -> None:
        self._keys = keys
        self._heads: WeakKeyDictionary[Call, CallHead | None] = WeakKeyDictionary()
        self._is_closed = False

    def admit(self, head: CallHead) -> bool:
        """Return True if a call has an accepted key, or needs none."""
        accepted = self._keys()
        return accepted is None or accepted.admit(head.metadata)

    def add(self, call: Call, head: CallHead | None) -> None:
        """Add a call and its head, or None if the call needs no key. After :meth:`close`, it ends at once."""
        self._heads[call] = head
        if self._is_closed:
            call.reject(draining())

    def keys_changed(self) -> None:
        """End the calls whose keys are no longer accepted."""
        for call, head in list(self._heads.items()):
            if head is not None and not self.admit(head):
                getattr(call, "revoke", call.reject)(_REFUSED)

    def close(self) -> None:
        """End all calls, because the server stops."""
        self._is_closed = True
        for call in list(self._heads):
            call.reject(draining())


def open_calls(
    methods: Mapping[bytes, OpenCall],
    *,
    calls: OpenCalls,
    free: Collection[bytes] = (),
    not_supported: Mapping[bytes, str] = MappingProxyType({}),
    otherwise: OpenCall | None = None,
) -> OpenCall:
    """Return the function that opens the call of each stream; without a method or a key, the call fails.

    Args:
        methods: open the calls, by path.
        calls: checks the keys, and collects the calls that clients may keep open.
        free: the paths of methods that need no key, because their responses reveal nothing about the server.
        not_supported: the reasons why methods that clients may know are missing, by path.
        otherwise: opens the calls of all other methods; None if they are unknown.
    """

    def open_call(stream: CallStream, head: CallHead) -> Call:
        method = methods.get(head.path, otherwise)
        if head.rejection is not None:
            return _failed(stream, head, head.rejection)
        if method is None:
            reason = not_supported.get(head.path, f"unknown method {head.path[:100].decode('latin-1')!r}")
            return _failed(stream, head, CallFailed(reason, Code.UNIMPLEMENTED))
        is_free = head.path in free
        if not (is_free or calls.admit(head)):
            return _failed(stream, head, _REFUSED)
        call = method(stream, head)
        if not call.takes_one:
            calls.add(call, None if is_free else head)
        return call

    return open_call


def _failed(stream: CallStream, head: CallHead, error: GatewayError) -> Call:
    call = PlainCall(stream, head)
    call.reject(error)
    return call


class PlainCall:
    """A call without a request in the dispatcher; the access log gets it when it ends."""

    takes_one = False
    max_message_bytes = SMALL_MESSAGE_BYTES

    def __init__(self, stream: CallStream, head: CallHead) -> None:
        self._arrived = time.perf_counter()
        self._stream = stream
        self._head = head
        self._size = 0
        self._is_finished = False

    def message_received(self, message: bytes) -> None:
        self._size += len(message)

    def end_received(self) -> None:
        """Do nothing: the call has failed, or its only message has a response."""

    def reject(self, error: GatewayError) -> None:
        if not self._is_finished:
            self._stream.finish(code_of(error), str(error), trailers_of(error))
            self._finished(error.status, code_of(error))

    def failed(self, error: Exception) -> None:
        """Finish with an error of the server; the log has one that is not for clients."""
        self.reject(error if isinstance(error, GatewayError) else unexpected(error))

    def cancelled(self) -> None:
        if not self._is_finished:
            self._finished(CLIENT_GONE, Code.CANCELLED)

    def _finished(self, status: int, code: Code = Code.OK) -> None:
        self._is_finished = True
        if self._stream.connection.observers.access_log:
            seconds = time.perf_counter() - self._arrived
            log_request(
                "POST",
                self._head.path,
                status,
                seconds,
                size=self._size,
                request_id=self._stream.request_id,
                grpc_status=code.name,
            )


class UnaryCall(PlainCall):
    """A call of a method that needs no dispatcher. The method completes even if the client leaves.

    Args:
        request: the class of the client's only message.
        answer: returns the response.
    """

    takes_one = True

    def __init__(self, stream: CallStream, head: CallHead, request: type[Message], answer: Answer) -> None:
        super().__init__(stream, head)
        self._request = request
        self._answer = answer

    def message_received(self, message: bytes) -> None:
        super().message_received(message)
        try:
            answer = self._answer(parse(self._request, message))
            if isinstance(answer, Message):
                self._reply(answer)
            else:
                self._waiting = asyncio.ensure_future(self._wait(answer))
        except Exception as error:
            self.failed(error)

    async def _wait(self, answer: Awaitable[Message]) -> None:
        try:
            self._reply(await answer)
        except Exception as error:
            self.failed(error)

    def _reply(self, answer: Message) -> None:
        message = answer.SerializeToString()
        if not self._is_finished:
            self._stream.reply(message, ())
            self._finished(HTTPStatus.OK)
