"""The input of an HTTP connection that has not been parsed yet."""

from uvicorn.protocols.http.flow_control import FlowControl

from uncork_gateway.connection.parser import RequestParser
from uncork_gateway.connection.parts import ConnectionOfParts
from uncork_gateway.connection.reply_queue import ReplyQueue
from uncork_gateway.connection.state import BODY, READING
from uncork_gateway.connection.turn import Turn
from uncork_gateway.errors import GatewayError

_STEP_BYTES = 1024


class ReadingFlow(FlowControl):
    """Flow control that does not resume reading while unparsed input is queued.

    Attributes:
        is_behind: True while unparsed input is queued.
    """

    is_behind = False

    def resume_reading(self) -> None:
        if not self.is_behind:
            super().resume_reading()


class Unparsed:
    """Parses input in small steps, until a request is queued or the turn of the event loop is used up.

    The rest is kept unparsed: requests take far more memory than their bytes.

    Attributes:
        data: the rest.
    """

    def __init__(
        self,
        connection: ConnectionOfParts,
        parser: RequestParser,
        replies: ReplyQueue,
        *,
        flow: ReadingFlow,
        turn: Turn,
    ) -> None:
        self.transport = connection.transport
        self._connection = connection
        self._flow = flow
        self._parser = parser
        self._replies = replies
        self._turn = turn
        self.data = b""
        self._is_feeding = self._waits_for_turn = False

    def add(self, data: bytes) -> bool:
        """Queue input after earlier input; return False if there is none and the caller must parse it."""
        if not (self.data and self._connection.state in READING):
            return False
        self._keep(self.data + data)
        return True

    def feed(self, data: bytes) -> None:
        """Parse input. The first step is always made, so that small requests do not wait for another turn."""
        at, self._is_feeding, turn = 0, True, self._turn
        connection, parser, replies = self._connection, self._parser, self._replies
        while at < len(data) and connection.state in READING:
            body_left = parser.body_left if connection.state is BODY else 0
            is_over = turn.left <= 0 and at > 0 and not body_left
            if replies.queued or is_over:
                self._keep(data[at:])
                if is_over and not self._waits_for_turn:
                    self._waits_for_turn = True
                    turn.wait(self)
                break
            end = at + max(_STEP_BYTES, body_left)
            self._step(data[at:end])
            at = end
        self._is_feeding = False

    def go_on(self) -> None:
        """Continue parsing in another turn of the event loop."""
        self._waits_for_turn = False
        self.feed_rest()

    def feed_rest(self) -> None:
        """Parse the queued input, unless a request or the turn still holds it up."""
        if not self.data or self._waits_for_turn or self._is_feeding or self._replies.queued:
            return
        if self._connection.state in READING:
            data = self.take()
            self._flow.resume_reading()
            self.feed(data)

    def end(self) -> None:
        """Parse all queued input at once, so that requests sent before the end get their responses."""
        if self.data and self._connection.state in READING:
            self._step(self.take())

    def take(self) -> bytes:
        """Remove and return the queued input."""
        data, self.data = self.data, b""
        self._flow.is_behind = False
        return data

    def close(self) -> None:
        """Drop the queued input, and the reference cycle with the connection."""
        self.data = b""
        del self._connection, self._parser

    def _keep(self, data: bytes) -> None:
        self.data = data
        self._flow.is_behind = True
        self._flow.pause_reading()

    def _step(self, data: bytes) -> None:
        try:
            self._parser.feed(data)
        except GatewayError as error:
            self._connection.give_up(error)
