"""The connection to one worker process."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol, cast

import msgspec

from uncork_gateway.backends.slot import BackendSlot
from uncork_gateway.service_log import ServiceLog
from uncork_workers.wire.dialing import USER_TIMEOUT_S, allow_unread
from uncork_workers.wire.frames import (
    Frame,
    FrameDecoder,
    FrameError,
    encode_frame,
    frame_buffers,
    split_payload,
)
from uncork_workers.wire.handshake import Application
from uncork_workers.wire.messages import (
    AnswerHead,
    Batch,
    Cancel,
    Failed,
    Goodbye,
    Gpus,
    Hello,
    Leaving,
    Piece,
    Ping,
    Ready,
    Reply,
    TakeFile,
    WarmUp,
)
from uncork_workers.wire.shared_file import SharedFile, send_with_file

# Below this size, copying the bodies of a batch is cheaper than writing them separately.
_SMALL_BYTES = 64 * 1024
# A worker reports its GPUs after each batch or, if it is idle, after each ping.
_RECENT_S = 30.0

WorkerState = Literal["starting", "idle", "busy"]

FromWorker = Hello | WarmUp | Ready | Failed | Leaving
"""The messages of a worker about itself."""

PoolEvent = Literal["described", "joined", "ready", "leaves", "gone"] | WarmUp | Failed
"""The news of a worker: its message WarmUp or Failed, after which it exits, or

* described: it has imported its service and described it. It may still be on standby.
* joined: it enters service, described: it gets batches now, or as soon as it is ready.
* ready: it has finished setup, or enters service after it has. It accepts batches unless it is on standby.
* leaves: it gets no more batches; its connection is closed when its current batches end.
* gone: its connection is closed, and its batches are lost. It had described itself.
"""


class Executed(NamedTuple):
    """A worker's reply, with the bodies that follow it."""

    reply: Reply
    bodies: list[bytes]


Done = Callable[[Executed], object]
"""Receives the reply to a batch. It is not called if the worker is lost before it replies."""

OnPiece = Callable[[AnswerHead | None, bytes], object]
"""Receives the next bytes of a streamed response; the first come with a head."""


@dataclass(slots=True)
class _Run:
    """A batch that a worker runs now or next, and its callbacks."""

    batch: Batch
    half: int
    """The half of the shared file that the batch and its reply may use."""
    done: Done
    on_piece: OnPiece | None
    is_streaming: bool = False
    """True if the first piece of the response has arrived."""


class Owner(Protocol):
    """The pool that owns a connection."""

    log: ServiceLog

    def received(self, worker: WorkerConnection, message: FromWorker) -> None:
        """Handle a message from a worker.

        Raises:
            FrameError: if the worker may not send this message now.
        """

    def has_replied(self, worker: WorkerConnection) -> None:
        """Note that a worker has finished a batch."""

    def drop(self, worker: WorkerConnection) -> None:
        """Close the connection of an unusable worker; kill the process if the supervisor launched it."""

    def gone(self, worker: WorkerConnection) -> None:
        """Handle the end of a connection, closed by either side."""


class WorkerConnection(asyncio.Protocol):
    """The connection to one worker.

    Args:
        standby: True if the worker gets no batches yet.
        application: how a worker on TCP has proved who it is; None on a Unix socket, to which only the
            supervisor's processes connect.
        offered: the index that the gateway has offered to a worker on TCP that it has not launched.

    Attributes:
        key: identifies the process, also in the dispatcher; never reused. 0 until ``hello``.
        is_held: True if the worker is on standby until its description may be served; others on standby wait
            for :meth:`WorkerPool.take_over`.
        is_self_started: True if the worker has proved that another program started it.
        index: the worker's place, once the worker has sent it or the gateway has offered it.
        is_launched: True if the supervisor started the process, and can therefore kill and replace it.
        hello: the description of the service, once the worker has sent it.
        ready: the results of the worker's setup, once finished.
        runs_in_order: True if the worker runs one batch after the other.
        is_retiring, retires_for: True if the worker gets no more batches; the reason to send to it.
    """

    def __init__(
        self,
        owner: Owner,
        *,
        standby: bool,
        application: Application | None = None,
        offered: int | None = None,
    ) -> None:
        self._owner = owner
        self.standby = standby
        self.application = application
        self.is_self_started = application is not None and application.launch is None
        self.is_held = standby and self.is_self_started
        self.key = 0
        self.index = offered
        self.is_launched = False
        self.hello: Hello | None = None
        self.ready: Ready | None = None
        self.runs_in_order = True
        self.is_retiring = False
        self.retires_for = ""
        self._decoder = FrameDecoder()
        self._transport: asyncio.Transport | None = None
        self._file: SharedFile | None = None
        """Carries large batches and their results, if any do not use the socket."""
        self._half = 0
        """The half of the file for the next batch."""
        self._runs: dict[int, _Run] = {}
        """By number, the batches that the worker runs, and the one ahead."""
        self._is_pinged = False
        """True if the worker was pinged and has sent nothing since."""
        self._gpus = Gpus({})
        self._gpus_at = -math.inf

    @property
    def accepts_batches(self) -> bool:
        return self.ready is not None and not self.standby and not self.is_retiring

    @property
    def is_busy(self) -> bool:
        return bool(self._runs)

    @property
    def state(self) -> WorkerState:
        if self.standby or self.ready is None:
            return "starting"
        return "busy" if self._runs else "idle"

    def slot(self, hello: Hello) -> BackendSlot:
        """Return the worker, which has sent ``hello``, as the status pages show it."""
        fault = f"worker {hello.index} is preparing to take over" if self.standby else ""
        if self.is_held:
            what = "it has another version of the service than the one that is served"
            remedy = "; `uncork reload` replaces all workers" if self.is_launched else ""
            fault = f"worker {hello.index} stands by: {what}{remedy}"
        is_recent = asyncio.get_running_loop().time() - self._gpus_at <= _RECENT_S
        gpus = self._gpus.gpus if is_recent else {}
        return BackendSlot(
            hello.index, self.state, self.key, pid=hello.pid, host=hello.host, fault=fault, gpus=gpus
        )

    def objection(self, hello: Hello) -> str:
        """Return why a worker's description contradicts what it has proved; empty if it does not."""
        known = self.application
        if known is not None and hello.launch != known.launch:
            return f"it claims to be {_launch(hello.launch)}, but connected as {_launch(known.launch)}"
        if self.index not in (None, hello.index):
            return f"it claims index {hello.index}, but was given {self.index}"
        return ""

    def runs(self, batch: int) -> bool:
        return self._run(batch) is not None

    def execute(self, batch: Batch, bodies: Sequence[bytes], done: Done, on_piece: OnPiece | None) -> None:
        """Send a batch to the worker; see :meth:`WorkerPool.execute`."""
        assert self._transport is not None
        # The file has room for a batch and the one ahead.
        if self.runs_in_order and self._file is not None and self._file.write(bodies, self._half):
            frame = frame_buffers(msgspec.structs.replace(batch, in_file=True))
        else:
            frame = frame_buffers(batch, bodies)
        size_bytes = sum(map(len, frame))
        if self.application is not None and not self._transport.is_closing():
            # A worker that runs a batch may leave the next one unread if its buffer is full.
            before = self._runs.values() if size_bytes > _SMALL_BYTES else ()
            unread_s = max([USER_TIMEOUT_S, *[run.batch.timeout_s for run in before]])
            allow_unread(self._transport.get_extra_info("socket"), unread_s)
        self._runs[batch.batch] = _Run(batch, self._half, done, on_piece)
        self._half = 1 - self._half
        if size_bytes < _SMALL_BYTES:
            self._transport.write(b"".join(frame))
        else:
            self._transport.writelines(frame)

    def cancel(self, batch: int, requests: Sequence[int]) -> None:
        """Cancel requests, by position, of a batch that the worker runs now or next; ignore other batches."""
        if self._transport is not None and batch in self._runs:
            self._transport.write(encode_frame(Cancel(batch, tuple(requests))))

    def ping_idle(self) -> None:
        """Ping the worker if it is idle; drop it if it has not responded to the previous ping.

        Without pings, a hung worker would go unnoticed until a batch on it times out.
        """
        if self._transport is None or self.ready is None or self._runs:
            self._is_pinged = False
        elif self._is_pinged:
            self._owner.log.error("dropping worker %s: it is idle and did not answer a ping", self.index)
            self._owner.drop(self)
        else:
            self._is_pinged = True
            self._transport.write(encode_frame(Ping()))

    def close(self, reason: str = "", *, is_final: bool = False) -> None:
        """Close the connection. A launched worker then exits; any other gets the reason in a Goodbye."""
        if self._transport is None:
            return
        if reason and self.is_self_started:
            self._transport.write(encode_frame(Goodbye(reason, is_final)))
        self._transport.close()

    def abort(self) -> None:
        """Close the connection at once, without sending pending data to a peer that may not read."""
        if self._transport is not None:
            self._transport.abort()

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        if self.application is None:
            self._share_file(self._transport)

    def _share_file(self, transport: asyncio.Transport) -> None:
        """Create the file, and send it to the worker before any other message."""
        try:
            self._file = SharedFile.create()
            send_with_file(transport.get_extra_info("socket").fileno(), encode_frame(TakeFile()), self._file)
        except OSError:  # no memfd, no descriptor left, or the worker is gone
            self._close_file()

    def _close_file(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def data_received(self, data: bytes) -> None:
        """Handle frames from the worker; drop the worker if a frame is invalid."""
        self._is_pinged = False
        try:
            for frame in self._decoder.feed(data):
                self._received(frame)
        except FrameError as error:
            self._owner.log.error("dropping worker %s: it sent an invalid message: %s", self.index, error)
            self._owner.drop(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._close_file()
        self._owner.gone(self)

    def _received(self, frame: Frame) -> None:
        match frame.message:  # a Pong needs nothing: any frame answers a ping
            case Reply():
                self._replied(frame.message, frame.payload)
            case Piece(batch=batch, head=head):
                self._streamed(batch, head, frame.payload)
            case Gpus():
                self._gpus, self._gpus_at = frame.message, asyncio.get_running_loop().time()
            case Hello() | WarmUp() | Ready() | Failed() | Leaving():
                self._owner.received(self, frame.message)
            case TakeFile() | Batch() | Cancel() | Ping() | Goodbye():
                raise FrameError("a worker may not send TakeFile, Batch, Cancel, Ping or Goodbye")

    def _run(self, batch: int) -> _Run | None:
        """Return a batch that the worker runs now; None if it is ahead, or not at the worker."""
        run = self._runs.get(batch)
        return run if run is None or not self.runs_in_order or batch == next(iter(self._runs)) else None

    def _streamed(self, batch: int, head: AnswerHead | None, data: bytes) -> None:
        run = self._run(batch)
        if run is None or run.on_piece is None:
            raise FrameError(f"output for batch {batch}, which is not streaming on this worker")
        if (head is None) != run.is_streaming:
            raise FrameError("the first piece of a response must have a head, and no other piece may")
        run.is_streaming = True
        run.on_piece(head, data)

    def _replied(self, reply: Reply, payload: bytes) -> None:
        run = self._run(reply.batch)
        if run is None:
            raise FrameError(f"response to batch {reply.batch}, which is not running on this worker")
        _check_reply(run.batch, reply)
        if not reply.in_file:
            bodies = split_payload(payload, reply.lengths)
        elif self._file is not None:
            bodies = self._file.read(reply.lengths, run.half)
        else:
            raise FrameError("a reply is in a shared file, but there is none")
        del self._runs[reply.batch]
        run.done(Executed(reply, bodies))
        self._owner.has_replied(self)


def _launch(launch: int | None) -> str:
    return "no launch of the gateway" if launch is None else f"launch {launch} of the gateway"


def _check_reply(batch: Batch, reply: Reply) -> None:
    requests = len(batch.lengths)
    for each in (reply.statuses, reply.lengths, reply.content_types, reply.headers):
        if each is not None and len(each) != requests:
            raise FrameError(f"a list of the response has length {len(each)}, the batch {requests} requests")
    if len(reply.forms) not in (1, requests):
        raise FrameError(f"the response has {len(reply.forms)} forms for {requests} requests")
    if reply.reasons and not (min(reply.reasons) >= 0 and max(reply.reasons) < requests):
        raise FrameError(
            f"the response has reasons for requests {list(reply.reasons)[:8]}, which are not in the batch"
        )
