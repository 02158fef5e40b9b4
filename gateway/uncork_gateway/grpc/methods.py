"""The methods of a gRPC port: opens the call for each path, and checks API keys."""

import asyncio
import time
from collections.abc import Awaitable, Mapping
from http import HTTPStatus

from google.protobuf.message import Message

from uncork_gateway.auth import REFUSAL, AcceptedKeys
from uncork_gateway.errors import CLIENT_GONE, GatewayError, unexpected
from uncork_gateway.grpc.interfaces import Call, CallHead, CallStream, OpenCall, StreamingMethod, UnaryMethod
from uncork_gateway.grpc.messages import parse
from uncork_gateway.grpc.statuses import CallFailed, Code, code_of, trailers_of

Method = UnaryMethod | StreamingMethod

SMALL_MESSAGE_BYTES = 8 * 1024
"""The largest message of a method that needs no dispatcher: these carry names, and some need no API key."""


class Methods:
    """Opens the call of each stream.

    Args:
        methods: the methods by path.
        not_supported: the reasons why methods that clients may know are missing, by path.
        keys: returns the accepted API keys.
        otherwise: opens the calls of all other methods; None if they are unknown.
    """

    def __init__(
        self,
        methods: Mapping[bytes, Method],
        *,
        not_supported: Mapping[bytes, str],
        keys: AcceptedKeys,
        otherwise: OpenCall | None = None,
    ) -> None:
        self._methods = methods
        self._not_supported = not_supported
        self._keys = keys
        self._otherwise = None if otherwise is None else StreamingMethod(otherwise)

    def open_call(self, stream: CallStream, head: CallHead) -> Call:
        """Open the call of a stream; without a method for its path, or a key, it fails at once."""
        method = self._methods.get(head.path, self._otherwise)
        if head.rejection is not None:
            return _failed(stream, head, head.rejection)
        if method is None:
            return _failed(stream, head, self._unknown(head.path))
        keys = self._keys()
        if keys is not None and not method.free and not keys.admit(head.metadata):
            return _failed(stream, head, CallFailed(REFUSAL, Code.UNAUTHENTICATED))
        return open_call(method, stream, head)

    def _unknown(self, path: bytes) -> CallFailed:
        name = path.decode("latin-1")
        reason = self._not_supported.get(path, f"unknown method {name!r}")
        return CallFailed(reason, Code.UNIMPLEMENTED)


def open_call(method: Method, stream: CallStream, head: CallHead) -> Call:
    """Open a call of a method, unary or streaming."""
    if isinstance(method, StreamingMethod):
        return method.open(stream, head)
    return UnaryCall(stream, head, method)


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

    def cancelled(self) -> None:
        if not self._is_finished:
            self._finished(CLIENT_GONE, Code.CANCELLED)

    def _finished(self, status: int, code: Code = Code.OK) -> None:
        self._is_finished = True
        access_log = self._stream.connection.access_log
        if access_log is not None:
            seconds = time.perf_counter() - self._arrived
            access_log.request(
                "POST",
                self._head.path,
                status,
                seconds,
                size=self._size,
                request_id=self._stream.request_id,
                grpc_status=code.name,
            )


class UnaryCall(PlainCall):
    """A call of a method that needs no dispatcher. The method completes even if the client leaves."""

    takes_one = True

    def __init__(self, stream: CallStream, head: CallHead, method: UnaryMethod) -> None:
        super().__init__(stream, head)
        self._method = method

    def message_received(self, message: bytes) -> None:
        super().message_received(message)
        try:
            answer = self._method.answer(parse(self._method.request, message))
            if isinstance(answer, Message):
                self._reply(answer)
            else:
                self._waiting = asyncio.ensure_future(self._wait(answer))
        except Exception as error:
            self.reject(error if isinstance(error, GatewayError) else unexpected(error))

    async def _wait(self, answer: Awaitable[Message]) -> None:
        try:
            self._reply(await answer)
        except Exception as error:
            self.reject(error if isinstance(error, GatewayError) else unexpected(error))

    def _reply(self, answer: Message) -> None:
        message = answer.SerializeToString()
        if not self._is_finished:
            self._stream.reply(message, ())
            self._finished(HTTPStatus.OK)
