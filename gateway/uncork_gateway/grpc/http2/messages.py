"""Reads the messages in the DATA of one stream: length prefixes, size limits, compression."""

import asyncio
import struct
from typing import Protocol

from uncork_gateway.connection.decompression import Inflating
from uncork_gateway.connection.pieces import Pieces
from uncork_gateway.errors import BadRequest, BodyTooLarge, GatewayError, no_room, unexpected
from uncork_gateway.grpc.statuses import CallFailed, Code
from uncork_gateway.interfaces import SMALL_BODY_BYTES, BodyPool

PREFIX = struct.Struct(">BI")
"""Of each message: a flag that is set if it is compressed, and its length."""
PREFIX_BYTES = PREFIX.size
_COMPRESSED = 1
_IN_PREFIX = -1
# Windows are not given back while the pool is full; this is for those that clients have already.
_OVERFULL = 2


class Receiver(Protocol):
    """The stream that receives the messages of a :class:`MessageReader`."""

    @property
    def must_wait(self) -> bool:
        """True if no message may be passed on now."""

    @property
    def max_message_bytes(self) -> int:
        """The size limit of a message, compressed or decompressed; it may change at any time."""

    @property
    def inflate_steps(self) -> int:
        """The number of steps that may be inflated at once."""

    def use_inflate_steps(self, steps: int) -> None: ...

    def message_complete(self, message: bytes) -> None: ...
    def messages_end(self) -> None: ...
    def give_up(self, error: GatewayError) -> None: ...
    def has_progressed(self) -> None:
        """Note that the reader continues after a message that took a while."""


class MessageReader:
    """Splits the DATA of a stream into messages, and decompresses them in order.

    While a message is inflated, or the receiver must wait, later DATA stays unread in the form received.

    Args:
        takes_one: True if the call takes exactly one message, which stays undecoded until the stream ends, so
            that a call that never ends costs no more than its bytes.

    Attributes:
        is_inflating: True while a thread inflates a message.
    """

    __slots__ = (
        "_encoding",
        "_flag",
        "_has_ended",
        "_is_closed",
        "_is_held",
        "_need",
        "_pieces",
        "_pool",
        "_receiver",
        "_takes_one",
        "_waiting",
        "is_inflating",
    )

    def __init__(self, receiver: Receiver, pool: BodyPool, *, encoding: bytes, takes_one: bool) -> None:
        self._receiver = receiver
        self._takes_one = takes_one
        self._is_held = False
        """True if the only message is complete, and waits for the end of the stream."""
        self._pool = pool
        self._encoding = encoding
        self._pieces = Pieces()
        """The received bytes of an incomplete prefix or message; the pool counts them."""
        self._need = PREFIX_BYTES
        """The length of the prefix or, once that has been read, of the message."""
        self._flag = _IN_PREFIX
        """1 if the message is compressed."""
        self._waiting = Pieces()
        self._has_ended = self._is_closed = False
        self.is_inflating = False

    @property
    def is_incomplete(self) -> bool:
        """True if the client has sent only the beginning of a message."""
        return (self._pieces.size > 0 or self._flag != _IN_PREFIX) and not self.is_inflating

    def close(self) -> None:
        self._is_closed = True
        self._take()
        self._pool.used_bytes -= self._waiting.size
        self._waiting.clear()

    @property
    def _must_wait(self) -> bool:
        return self.is_inflating or self._receiver.must_wait

    def feed(self, data: bytes) -> None:
        if self._must_wait:
            self._waiting.add(data)
            self._pool.used_bytes += len(data)
        else:
            self._read(data)

    def end(self) -> None:
        """Handle the end of the client's stream."""
        self._has_ended = True
        if self._must_wait or self._is_closed:
            return
        if self._is_held:
            self._is_held = self._takes_one = False
            self._pass_on(self._flag, self._take())
            self.end()
        elif self.is_incomplete:
            part = "its prefix" if self._flag == _IN_PREFIX else "a message"
            end = f"the stream ended after {self._pieces.size} of {self._need} bytes of {part}"
            self._give_up(CallFailed(end, Code.INTERNAL))
        elif self._takes_one:
            self._give_up(CallFailed("this method takes one message, got none", Code.INTERNAL))
        else:
            self._receiver.messages_end()

    def _read(self, data: bytes) -> None:
        at = 0
        while at < len(data) and not self._is_closed:
            if self._is_held:
                self._give_up(CallFailed("this method takes one message, got more", Code.INTERNAL))
                return
            if self._must_wait:
                self._waiting.put_back(data[at:])
                self._pool.used_bytes += len(data) - at
                return
            piece = data[at : at + self._need - self._pieces.size]
            at += len(piece)
            self._pieces.add(piece)
            self._pool.used_bytes += len(piece)
            if self._pieces.size == self._need:
                self._complete()
            else:
                self._check_pool()

    def _check_pool(self) -> None:
        if self._pieces.size > SMALL_BODY_BYTES and self._pool.used_bytes > _OVERFULL * self._pool.max_bytes:
            self._give_up(no_room())

    def _complete(self) -> None:
        """Read a complete prefix, or pass a complete message on."""
        if self._flag == _IN_PREFIX:
            flag, length = PREFIX.unpack(self._take())
            error = self._wrong_prefix(flag, length)
            if error is not None:
                self._give_up(error)
                return
            self._flag, self._need = flag, length
            if length:
                return
        if self._takes_one:
            self._is_held = True
        else:
            self._pass_on(self._flag, self._take())

    def _pass_on(self, flag: int, whole: bytes) -> None:
        if flag:
            self._inflate(whole)
        else:
            self._receiver.message_complete(whole)

    def _wrong_prefix(self, flag: int, length: int) -> GatewayError | None:
        if flag > _COMPRESSED:
            return CallFailed(f"the first byte of a message must be 0 or 1, got {flag}", Code.INTERNAL)
        if flag and not self._encoding:
            return CallFailed("a message is compressed, but the call has no grpc-encoding", Code.INTERNAL)
        max_bytes = self._receiver.max_message_bytes
        if length > max_bytes:
            return BodyTooLarge(f"the message has {length} bytes, and the limit is {max_bytes} bytes")
        return None

    def _take(self) -> bytes:
        """Return the received prefix or message, and expect the next prefix."""
        self._pool.used_bytes -= self._pieces.size
        self._need, self._flag = PREFIX_BYTES, _IN_PREFIX
        return self._pieces.take()

    def _give_up(self, error: GatewayError) -> None:
        self.close()
        self._receiver.give_up(error)

    # Compression

    def _inflate(self, body: bytes) -> None:
        at_once, max_bytes = self._receiver.inflate_steps, self._receiver.max_message_bytes
        try:
            inflating = Inflating(body, self._encoding, max_bytes=max_bytes, at_once=at_once)
        except Exception as error:
            self._give_up(_not_inflated(error))
            return
        self._receiver.use_inflate_steps(inflating.steps)
        if inflating.inflated is not None:
            self._receiver.message_complete(inflating.inflated)
        elif self._pool.is_full:
            self._give_up(no_room())
        else:
            self.is_inflating = True
            inflating.finish_in_thread(self._pool, self._inflated)

    def _inflated(self, inflating: asyncio.Future[bytes]) -> None:
        self.is_inflating = False
        try:
            message = inflating.result()
        except Exception as error:
            if not self._is_closed:
                self._give_up(_not_inflated(error))
            return
        if not self._is_closed:
            self._receiver.message_complete(message)
            self.go_on()

    def go_on(self) -> None:
        """Read the DATA that waited for its turn or for room, until it must wait again."""
        while self._waiting.size and not self._must_wait:
            data = self._waiting.take_first()
            self._pool.used_bytes -= len(data)
            self._read(data)
        if self._has_ended:
            self.end()
        elif not (self._must_wait or self._is_closed):
            self._receiver.has_progressed()


def _not_inflated(error: Exception) -> GatewayError:
    if isinstance(error, BadRequest):
        return CallFailed(str(error), Code.INTERNAL)
    return error if isinstance(error, GatewayError) else unexpected(error)
