"""The connection to one worker process."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple, Protocol, cast

from uncork_dispatcher import WorkerLost
from uncork_workers.wire.frames import (
    Frame,
    FrameDecoder,
    FrameError,
    encode_frame,
    frame_buffers,
    split_payload,
)
from uncork_workers.wire.messages import (
    AnswerHead,
    Batch,
    Cancel,
    Failed,
    Hello,
    Piece,
    Ping,
    Pong,
    Ready,
    Reply,
    WarmUp,
)
from uncork_workers.wire.schema import ServiceDescription

log = logging.getLogger("uncork.gateway")

# Below this size, copying the bodies of a batch is cheaper than writing them separately.
_SMALL_BYTES = 64 * 1024

WorkerState = Literal["starting", "idle", "busy"]


class Executed(NamedTuple):
    """A reply and the bodies that came with it."""

    reply: Reply
    bodies: list[bytes]


Done = Callable[[Executed | WorkerLost], object]
"""Receives the reply to a batch, or WorkerLost if the worker died before it replied."""

OnPiece = Callable[[AnswerHead | None, bytes], object]
"""Receives the next bytes of a streamed answer; the first come with a head."""


class PoolListener(Protocol):
    """Notified of events of workers.

    ``worker`` is the number of a connection and of its successors after a takeover; it is never reused.
    """

    def worker_imported(self, files: list[str]) -> None:
        """A worker has imported its service from these files of the user."""

    def worker_described(self, service: ServiceDescription) -> None:
        """A worker has described its service."""

    def worker_ready(self, worker: int, index: int) -> None:
        """The worker of an index accepts batches."""

    def worker_profiled(self, worker: int, ready: Ready) -> None:
        """A worker that now accepts batches has sent the results of its warm-up."""

    def worker_lost(self, worker: int, index: int) -> None:
        """The connection to the worker of an index, which accepted batches, is lost."""

    def worker_connected(self, index: int) -> None:
        """A worker has connected and sets up its service. Not called for standbys."""

    def worker_warms_up(self, index: int, api: str, rows: int) -> None:
        """A worker warms up an API with ``rows`` rows of its example. Not called for standbys."""

    def batch_finished(self, pid: int) -> None:
        """A worker process has replied to a batch."""

    def worker_dropped(self, pid: int) -> None:
        """A connection was closed because the worker violated the protocol or did not answer."""

    def worker_failed(self, failed: Failed, *, standby: bool) -> None:
        """A worker cannot become ready; ``standby`` if it was started to take over."""

    def worker_stands_by(self, pid: int) -> None:
        """A worker is ready to take over."""

    def worker_retired(self, pid: int) -> None:
        """A replaced worker has finished its last batch and its connection was closed."""


class _Run(NamedTuple):
    """A batch that a worker runs, and its callbacks."""

    batch: Batch
    done: Done
    on_piece: OnPiece | None


class WorkerConnection(asyncio.Protocol):
    """The connection to one worker; ``gone`` is called when either side has closed it."""

    def __init__(
        self,
        number: int,
        listener: PoolListener,
        *,
        standby: bool,
        gone: Callable[[WorkerConnection], object],
    ) -> None:
        self.number = number
        self.standby = standby
        self._listener = listener
        self._gone = gone
        self._decoder = FrameDecoder()
        self._transport: asyncio.Transport | None = None
        self._running: _Run | None = None
        self._is_streaming = False
        """Whether the first piece of the answer has arrived."""
        self._is_retiring = False
        self._is_retired = False
        self._is_pinged = False
        """Whether the worker was pinged and has sent nothing since."""
        self.hello: Hello | None = None
        self.ready: Ready | None = None

    @property
    def index(self) -> int | None:
        """The worker's index, once it has sent it."""
        return None if self.hello is None else self.hello.index

    @property
    def is_ready(self) -> bool:
        """Whether the worker has set up its service."""
        return self.ready is not None

    @property
    def state(self) -> WorkerState:
        if self.standby or not self.is_ready:
            return "starting"
        return "idle" if self._running is None else "busy"

    def runs(self, batch: int) -> bool:
        return self._running is not None and self._running.batch.batch == batch

    def execute(self, batch: Batch, bodies: Sequence[bytes], done: Done, on_piece: OnPiece | None) -> None:
        """Run a batch; see :meth:`WorkerPool.execute`."""
        assert self._transport is not None
        frame = frame_buffers(batch, bodies)
        self._running = _Run(batch, done, on_piece)
        self._is_streaming = False
        if sum(map(len, bodies)) < _SMALL_BYTES:
            self._transport.write(b"".join(frame))
        else:
            self._transport.writelines(frame)

    def cancel(self) -> None:
        assert self._transport is not None
        assert self._running is not None
        self._transport.write(encode_frame(Cancel(batch=self._running.batch.batch)))

    def ping_idle(self) -> None:
        """Ping the worker if it is idle; drop it if it did not answer the last ping.

        Without pings a hung worker would show only when a batch on it times out.
        """
        if self._transport is None or not self.is_ready or self._running is not None:
            self._is_pinged = False
        elif self._is_pinged:
            log.error("killing worker %s: it is idle and did not answer a ping", self.index)
            self._drop()
        else:
            self._is_pinged = True
            self._transport.write(encode_frame(Ping()))

    def retire(self) -> None:
        """Close the connection when the worker has finished its batch."""
        self._is_retiring = True
        self._leave_if_idle()

    def give_up(self) -> None:
        """Report that the worker may be killed soon, whatever it runs."""
        if self.hello is not None and not self._is_retired:
            self._is_retired = True
            self._listener.worker_retired(self.hello.pid)

    def close(self) -> None:
        """Close the connection; the worker then exits."""
        if self._transport is not None:
            self._transport.close()

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        """Handle the frames of the worker; drop it if one is invalid."""
        self._is_pinged = False
        try:
            for frame in self._decoder.feed(data):
                self._received(frame)
        except FrameError as error:
            log.error("killing worker %s: it sent an invalid message: %s", self.index, error)
            self._drop()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._running is not None:
            self._running.done(WorkerLost(f"worker {self.index} died"))
        self._gone(self)

    def _drop(self) -> None:
        self.close()
        if self.hello is not None:
            self._listener.worker_dropped(self.hello.pid)

    def _received(self, frame: Frame) -> None:
        match frame.message:
            case Hello():
                self._said_hello(frame.message)
            case WarmUp(api=api, rows=rows):
                if not self.standby and self.hello is not None:
                    self._listener.worker_warms_up(self.hello.index, api, rows)
            case Ready():
                self._is_now_ready(frame.message)
            case Failed():
                self._listener.worker_failed(frame.message, standby=self.standby)
            case Reply():
                self._replied(frame.message, frame.payload)
            case Piece(batch=batch, head=head):
                self._streamed(batch, head, frame.payload)
            case Pong():
                pass  # any frame answers a ping
            case Batch() | Cancel() | Ping():
                raise FrameError("a worker may not send Batch, Cancel or Ping")

    def _said_hello(self, hello: Hello) -> None:
        self.hello = hello
        self._listener.worker_imported(hello.files)
        if not self.standby:
            self._listener.worker_connected(hello.index)
            self._listener.worker_described(hello.service)

    def _is_now_ready(self, ready: Ready) -> None:
        if self.hello is None:
            raise FrameError("Ready arrived before Hello")
        self._listener.worker_imported(ready.files)
        self.ready = ready
        if self.standby:
            self._listener.worker_stands_by(self.hello.pid)
        else:
            self._listener.worker_profiled(self.number, ready)
            self._listener.worker_ready(self.number, self.hello.index)

    def _leave_if_idle(self) -> None:
        if self._is_retiring and self._running is None:
            self.close()
            self.give_up()

    def _streamed(self, batch: int, head: AnswerHead | None, data: bytes) -> None:
        if self._running is None or self._running.batch.batch != batch or self._running.on_piece is None:
            raise FrameError(f"output for batch {batch}, which is not streaming on this worker")
        if (head is None) != self._is_streaming:
            raise FrameError("the first piece of a response must have a head, and no other piece may")
        self._is_streaming = True
        self._running.on_piece(head, data)

    def _replied(self, reply: Reply, payload: bytes) -> None:
        if self._running is None or self._running.batch.batch != reply.batch:
            raise FrameError(f"response to batch {reply.batch}, which is not running on this worker")
        batch, done, _ = self._running
        lists = (reply.statuses, reply.lengths, reply.content_types, reply.headers)
        lengths = [len(one) for one in lists if one is not None]
        if set(lengths) != {len(batch.lengths)}:
            raise FrameError(
                f"the response's lists have lengths {lengths}, the batch has {len(batch.lengths)} requests"
            )
        if len(reply.forms) not in (1, len(reply.lengths)):
            raise FrameError(f"the response has {len(reply.forms)} forms for {len(reply.lengths)} requests")
        if not all(0 <= at < len(reply.statuses) for at in reply.reasons):
            raise FrameError(
                f"the response has reasons for requests {list(reply.reasons)[:8]}, which are not in the batch"
            )
        bodies = split_payload(payload, reply.lengths)
        self._running = None
        done(Executed(reply, bodies))
        if self.hello is not None:
            self._listener.batch_finished(self.hello.pid)
        self._leave_if_idle()
