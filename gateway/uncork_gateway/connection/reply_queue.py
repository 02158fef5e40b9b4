"""The requests of one connection that have no response yet."""

import asyncio
from collections import deque

from uvicorn.protocols.http.flow_control import FlowControl

from uncork_gateway.errors import unexpected
from uncork_gateway.interfaces import QueuedRequest


class ReplyQueue:
    """Starts one request after the other, while the client reads its responses.

    Reading is paused while requests are queued, so that pipelined requests do not pile up.

    Attributes:
        current: the request that may respond, if any.
        queued: the requests after it.
    """

    def __init__(self, transport: asyncio.Transport, flow: FlowControl) -> None:
        self.current: QueuedRequest | None = None
        self.queued: deque[QueuedRequest] = deque()
        self._transport = transport
        self._flow = flow
        self._is_advancing = False

    @property
    def is_free(self) -> bool:
        """True if a new request can start at once."""
        return self.current is None and not self.queued and not self._flow.write_paused

    @property
    def newest(self) -> QueuedRequest | None:
        return self.queued[-1] if self.queued else self.current

    def add(self, request: QueuedRequest) -> None:
        """Start a request, or queue it after earlier ones."""
        if self.is_free:
            self.current = request
            request.start()
        else:
            self._flow.pause_reading()
            self.queued.append(request)

    def advance(self) -> None:
        """Start queued requests until one does not respond at once. An exception closes the connection.

        A loop, because recursion would overflow with thousands of pipelined requests.
        """
        if self._is_advancing or not (self.queued or self._flow.read_paused):
            return
        self._is_advancing = True
        try:
            while self.current is None and not (self._flow.write_paused or self._transport.is_closing()):
                if len(self.queued) < 2:
                    self._flow.resume_reading()
                if not self.queued:
                    break
                self.current = self.queued.popleft()
                self.current.start()
        except Exception as error:
            # Nothing would answer that request, and those behind it would wait forever.
            unexpected(error)
            self._transport.close()
        finally:
            self._is_advancing = False

    def disconnect(self) -> None:
        requests = [self.current, *self.queued]
        self.current = None
        self.queued.clear()
        for request in requests:
            if request is not None:
                request.disconnect()
