"""The connection to one worker process."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple, cast

import msgspec

from uncork_dispatcher import WorkerLost
from uncork_gateway.backends.payload_file import PayloadFile
from uncork_gateway.backends.pool_listener import PoolListener
from uncork_gateway.backends.worker_identity import Identity
from uncork_gateway.backends.worker_replies import Executed, check_reply
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
    Goodbye,
    Hello,
    Leaving,
    Piece,
    Ping,
    Ready,
    Reply,
    TakeFile,
    WarmUp,
)

# Below this size, copying the bodies of a batch is cheaper than writing them separately.
_SMALL_BYTES = 64 * 1024

WorkerState = Literal["starting", "idle", "busy"]


Done = Callable[[Executed | WorkerLost], object]
"""Receives the reply to a batch, or WorkerLost if the worker died before it replied."""

OnPiece = Callable[[AnswerHead | None, bytes], object]
"""Receives the next bytes of a streamed answer; the first come with a head."""


class _Run(NamedTuple):
    """A batch that a worker runs, or will run next, and its callbacks."""

    batch: Batch
    half: int
    """The half of the shared file that the batch and its reply may use."""
    done: Done
    on_piece: OnPiece | None


class WorkerConnection(asyncio.Protocol):
    """The connection to one worker.

    Args:
        number: its number in the dispatcher, unless it inherits another.
        standby: whether it gets no batches yet.
        gone: called when either side has closed the connection.
        leaves: called when the worker wants to exit.
        joins: called before a process of the supervisor joins.
        identity: of a worker on TCP; None on a Unix socket, where only the supervisor's processes connect.
    """

    def __init__(
        self,
        number: int,
        listener: PoolListener,
        *,
        standby: bool,
        gone: Callable[[WorkerConnection], object],
        leaves: Callable[[WorkerConnection], object],
        joins: Callable[[Hello], object] = lambda hello: None,
        identity: Identity | None = None,
    ) -> None:
        self.number = number
        self.standby = standby
        self._listener = listener
        self.identity = identity
        self._gone = gone
        self._leaves = leaves
        self._joins = joins
        self._decoder = FrameDecoder()
        self._transport: asyncio.Transport | None = None
        self._file = PayloadFile()
        self._half = 0
        """The half of the file for the next batch."""
        self._runs: deque[_Run] = deque()
        """The batch that the worker runs, and the one ahead."""
        self._is_streaming = False
        """Whether the first piece of the answer has arrived."""
        self._is_retiring = False
        self._retires_for = ""
        self._is_retired = False
        self._is_pinged = False
        """Whether the worker was pinged and has sent nothing since."""
        self.hello: Hello | None = None
        self.ready: Ready | None = None

    @property
    def index(self) -> int | None:
        """The worker's index, once it has sent it or was offered one."""
        if self.hello is not None:
            return self.hello.index
        return None if self.identity is None else self.identity.index

    @property
    def launch(self) -> int | None:
        """The launch of the supervisor that started the process, once the worker has sent it."""
        return None if self.hello is None else self.hello.launch

    @property
    def is_launched(self) -> bool:
        """Whether the supervisor started the process, which can therefore kill and replace it."""
        return self.launch is not None

    @property
    def is_ready(self) -> bool:
        """Whether the worker has set up its service."""
        return self.ready is not None

    @property
    def state(self) -> WorkerState:
        if self.standby or not self.is_ready:
            return "starting"
        return "busy" if self._runs else "idle"

    def runs(self, batch: int) -> bool:
        return bool(self._runs) and self._runs[0].batch.batch == batch

    def execute(self, batch: Batch, bodies: Sequence[bytes], done: Done, on_piece: OnPiece | None) -> None:
        """Run a batch, after the one that the worker runs now; see :meth:`WorkerPool.execute`."""
        assert self._transport is not None
        if self._file.write(bodies, self._half):
            frame = frame_buffers(msgspec.structs.replace(batch, in_file=True))
        else:
            frame = frame_buffers(batch, bodies)
        self._runs.append(_Run(batch, self._half, done, on_piece))
        self._half = 1 - self._half
        if sum(map(len, frame)) < _SMALL_BYTES:
            self._transport.write(b"".join(frame))
        else:
            self._transport.writelines(frame)

    def cancel(self) -> None:
        """Cancel the batch that the worker runs."""
        assert self._transport is not None
        self._transport.write(encode_frame(Cancel(batch=self._runs[0].batch.batch)))

    def ping_idle(self) -> None:
        """Ping the worker if it is idle; drop it if it did not answer the last ping.

        Without pings a hung worker would show only when a batch on it times out.
        """
        if self._transport is None or not self.is_ready or self._runs:
            self._is_pinged = False
        elif self._is_pinged:
            self._listener.log.error("dropping worker %s: it is idle and did not answer a ping", self.index)
            self.drop()
        else:
            self._is_pinged = True
            self._transport.write(encode_frame(Ping()))

    def retire(self, reason: str = "") -> None:
        """Close the connection when the worker has finished its batch; see :meth:`close`."""
        self._is_retiring, self._retires_for = True, reason
        self._leave_if_idle()

    def give_up(self) -> None:
        """Report that the worker may be killed soon, whatever it runs."""
        if self.hello is not None and not self._is_retired:
            self._is_retired = True
            if self.hello.launch is not None:
                self._listener.worker_retired(self.hello.launch)

    def close(self, reason: str = "", *, is_final: bool = False) -> None:
        """Close the connection. A launched worker then exits; others get the reason in a Goodbye."""
        if self._transport is None:
            return
        if reason and self.identity is not None and self.identity.launch is None:
            self._transport.write(encode_frame(Goodbye(reason, is_final)))
        self._transport.close()

    def abort(self) -> None:
        """Close the connection at once. What is still to be sent would keep it open if nobody reads."""
        if self._transport is not None:
            self._transport.abort()

    def drop(self) -> None:
        """Close the connection of an unusable worker; the supervisor kills a process that it launched."""
        self.abort()
        if self.hello is not None and self.hello.launch is not None:
            self._listener.worker_dropped(self.hello.launch)

    def join(self) -> None:
        """Report a worker that may now get batches, once it is ready."""
        assert self.hello is not None
        self.standby = False
        self._listener.worker_connected(self.hello.index)
        self._listener.worker_described(self.hello.service)
        if self.ready is not None:
            self._report_ready(self.hello, self.ready)

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        if self.identity is None:
            self._file.share(self._transport)

    def data_received(self, data: bytes) -> None:
        """Handle the frames of the worker; drop it if one is invalid."""
        self._is_pinged = False
        try:
            for frame in self._decoder.feed(data):
                self._received(frame)
        except FrameError as error:
            self._listener.log.error("dropping worker %s: it sent an invalid message: %s", self.index, error)
            self.drop()

    def connection_lost(self, exc: Exception | None) -> None:
        self._file.close()
        for run in self._runs:
            run.done(WorkerLost(f"worker {self.index} died"))
        self._gone(self)

    def _received(self, frame: Frame) -> None:
        match frame.message:  # a Pong needs nothing: any frame answers a ping
            case Hello():
                self._said_hello(frame.message)
            case WarmUp(api=api, rows=rows):
                if not self.standby and self.hello is not None:
                    self._listener.worker_warms_up(self.hello.index, api, rows)
            case Ready():
                self._is_now_ready(frame.message)
            case Failed():
                self._has_failed(frame.message)
            case Reply():
                self._replied(frame.message, frame.payload)
            case Piece(batch=batch, head=head):
                self._streamed(batch, head, frame.payload)
            case Leaving():
                self._wants_to_leave()
            case TakeFile() | Batch() | Cancel() | Ping() | Goodbye():
                raise FrameError("a worker may not send TakeFile, Batch, Cancel, Ping or Goodbye")

    def _said_hello(self, hello: Hello) -> None:
        if self.hello is not None:
            raise FrameError("Hello arrived twice")
        objection = "" if self.identity is None else self.identity.objection(hello)
        if objection:
            self._listener.log.error("dropping worker %s: %s", self.index, objection)
            self.close(f"the gateway refuses this worker: {objection}", is_final=True)
            return
        self.hello = hello
        if not self.is_launched:
            self._listener.joining_changed()
            return
        self._listener.worker_imported(hello.files)
        if not self.standby:
            self._joins(hello)
            self.join()

    def _is_now_ready(self, ready: Ready) -> None:
        if self.hello is None:
            raise FrameError("Ready arrived before Hello")
        self.ready = ready
        if self.hello.launch is not None:
            self._listener.worker_imported(ready.files)
        if not self.standby:
            self._report_ready(self.hello, ready)
        elif self.hello.launch is not None:
            self._listener.worker_stands_by(self.hello.launch)
        if self.hello.launch is None:
            self._listener.joining_changed()

    def _report_ready(self, hello: Hello, ready: Ready) -> None:
        self._listener.worker_profiled(self.number, ready)
        self._listener.worker_ready(self.number, hello)

    def _has_failed(self, failed: Failed) -> None:
        # A launched worker that cannot load its service says so before it has an index here.
        if self.index not in (None, failed.index):
            raise FrameError(f"a failure of worker {failed.index}, which is another one")
        self._listener.worker_failed(failed, standby=self.standby)

    def _wants_to_leave(self) -> None:
        if self.hello is not None:
            self._listener.log.info("worker %d on %s is leaving", self.hello.index, self.hello.host)
        self._leaves(self)

    def _leave_if_idle(self) -> None:
        if self._is_retiring and not self._runs:
            self.close(self._retires_for)
            self.give_up()

    def _streamed(self, batch: int, head: AnswerHead | None, data: bytes) -> None:
        on_piece = self._runs[0].on_piece if self.runs(batch) else None
        if on_piece is None:
            raise FrameError(f"output for batch {batch}, which is not streaming on this worker")
        if (head is None) != self._is_streaming:
            raise FrameError("the first piece of a response must have a head, and no other piece may")
        self._is_streaming = True
        on_piece(head, data)

    def _replied(self, reply: Reply, payload: bytes) -> None:
        if not self.runs(reply.batch):
            raise FrameError(f"response to batch {reply.batch}, which is not running on this worker")
        run = self._runs[0]
        check_reply(run.batch, reply)
        if reply.in_file:
            bodies = self._file.read(reply.lengths, run.half)
        else:
            bodies = split_payload(payload, reply.lengths)
        self._runs.popleft()
        self._is_streaming = False
        run.done(Executed(reply, bodies))
        if self.hello is not None and self.hello.launch is not None:
            self._listener.batch_finished(self.hello.launch)
        self._leave_if_idle()
