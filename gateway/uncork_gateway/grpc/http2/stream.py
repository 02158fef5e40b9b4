"""The stream of one call, with its incoming half."""

from uncork_gateway.connection.turn import MESSAGE_WORK
from uncork_gateway.errors import GatewayError
from uncork_gateway.grpc.http2.frames import ErrorCode, StreamFault
from uncork_gateway.grpc.http2.messages import PREFIX, PREFIX_BYTES, MessageReader
from uncork_gateway.grpc.http2.outgoing import Outgoing, StreamConnection
from uncork_gateway.grpc.interfaces import Call, CallHead
from uncork_gateway.headers import new_request_id

WINDOW_BYTES = 2**20
"""How much a client may send of a stream before the server gives it more."""
_LOW_WINDOW_BYTES = WINDOW_BYTES // 2


class Stream(Outgoing):
    """One HTTP/2 stream: a :class:`CallStream` for its call.

    Attributes:
        call: receives the messages; None once it has ended, to break the reference cycle between them.
        receive_window: the bytes of DATA that the client may send.
        reader: reads messages; None while each message has come in a frame of its own.
        received_bytes: the total bytes of DATA received.
        is_half_closed: True if the client has ended its side.
        is_paused: True while the call accepts no messages.
    """

    __slots__ = (
        "_head",
        "_is_behind",
        "_is_rejected",
        "call",
        "is_half_closed",
        "is_paused",
        "lane",
        "reader",
        "receive_window",
        "received_bytes",
    )

    def __init__(
        self, connection: StreamConnection, number: int, lane: int, head: CallHead, *, window: int
    ) -> None:
        super().__init__(connection, number, head.request_id or new_request_id(), window=window)
        self.call: Call | None = None
        self.lane = lane
        self.receive_window = WINDOW_BYTES
        self.reader: MessageReader | None = None
        self.is_half_closed = False
        self.received_bytes = 0
        self._head = head
        self._is_rejected = self.is_paused = self._is_behind = False

    def data_received(self, data: bytes, *, ends: bool) -> None:
        """Handle DATA.

        Raises:
            StreamFault: if the client sends more or less than it has declared.
        """
        size = len(data)
        self.received_bytes += size
        if self._head.length >= 0:
            self._check_length(ends=ends)
        if ends:
            self.is_half_closed = True
        elif self.receive_window < _LOW_WINDOW_BYTES and not self.is_paused:
            self.connection.widen(self.number)
        call = self.call
        if call is None or self._is_rejected:
            return
        must_wait = self.is_paused or (call.takes_one and not ends)
        if self.reader is None and size >= PREFIX_BYTES and not must_wait:
            flag, length = PREFIX.unpack_from(data)
            if not flag and length == size - PREFIX_BYTES and length <= self.max_message_bytes:
                if not call.takes_one:
                    self.connection.turn.left -= MESSAGE_WORK
                call.message_received(data[PREFIX_BYTES:])
                if ends and self.is_open:
                    call.end_received()
                return
        self._read(call, data, ends=ends)

    def end(self) -> None:
        """Handle the end of the client's side, in a frame without DATA.

        Raises:
            StreamFault: if the client has sent less than it has declared.
        """
        self.data_received(b"", ends=True)

    def _read(self, call: Call, data: bytes, *, ends: bool) -> None:
        reader = self.reader
        if reader is None:
            if not (data or call.takes_one or self.is_paused):
                if ends:
                    call.end_received()
                return
            reader = self.reader = MessageReader(
                self, self.connection.pool, encoding=self._head.encoding, takes_one=call.takes_one
            )
        reader.feed(data)
        if ends:
            reader.end()

    @property
    def max_message_bytes(self) -> int:
        assert self.call is not None
        return min(self.connection.limits.max_message_bytes, self.call.max_message_bytes)

    def _check_length(self, *, ends: bool) -> None:
        declared, received = self._head.length, self.received_bytes
        if received > declared or (ends and received < declared):
            raise StreamFault(ErrorCode.PROTOCOL_ERROR)

    @property
    def is_incomplete(self) -> bool:
        """True if the client must send the rest of a message, or the end of a call that takes one message."""
        if self.is_paused or self.call is None:
            return False
        if self.call.takes_one:
            return not self.is_half_closed
        return self.reader is not None and self.reader.is_incomplete

    @property
    def is_inflating(self) -> bool:
        return self.reader is not None and self.reader.is_inflating

    @property
    def is_narrow(self) -> bool:
        """True if the client needs a larger window to continue."""
        is_low = self.receive_window < _LOW_WINDOW_BYTES and not self.is_half_closed
        return is_low and not (self.is_inflating or self.is_paused)

    def message_complete(self, message: bytes) -> None:
        call = self.call
        if call is not None:
            if not call.takes_one:
                self._charge_message()
            call.message_received(message)

    def _charge_message(self) -> None:
        """Charge a message to the turn; leave later messages for another turn if this one is used up."""
        turn = self.connection.turn
        turn.left -= MESSAGE_WORK
        if turn.left <= 0 and not self._is_behind:
            self._is_behind = True
            self.connection.postpone(self.number)

    def catch_up(self) -> None:
        """Read the messages that were left for this turn of the event loop."""
        self._is_behind = False
        if self.reader is not None:
            self.reader.go_on()

    @property
    def must_wait(self) -> bool:
        return self.is_paused or self._is_behind

    def messages_end(self) -> None:
        if self.call is not None:
            self.call.end_received()

    def give_up(self, error: GatewayError) -> None:
        """End the call with an error that the client caused."""
        if self.call is not None and not self._is_rejected:
            self._is_rejected = True
            if self.reader is not None:
                self.reader.close()
            self.call.reject(error)

    def has_progressed(self) -> None:
        if self.is_narrow:
            self.connection.widen(self.number)

    @property
    def inflate_steps(self) -> int:
        return self.connection.inflate_steps

    def use_inflate_steps(self, steps: int) -> None:
        self.connection.inflate_steps -= steps

    def pause(self) -> None:
        self.is_paused = True

    def resume(self) -> None:
        if self.is_paused and self.is_open:
            self.is_paused = False
            if self.reader is not None:
                self.reader.go_on()
            self.has_progressed()

    def _stop_reading(self) -> None:
        self.is_open = False
        self.call = None
        if self.reader is not None:
            self.reader.close()
            self.reader = None

    def cancel(self) -> None:
        """Drop all data, and notify the call: the client has gone, or the stream is reset."""
        self._drop()
        call = self.call
        self._stop_reading()
        if call is not None and not self._is_rejected:
            call.cancelled()
