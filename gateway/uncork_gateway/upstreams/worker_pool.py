"""The gateway's end of the sockets to the worker processes."""

from __future__ import annotations

import asyncio
import itertools
import logging
import socket
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Literal, NamedTuple, Protocol, cast

from uncork_dispatcher import WorkerLost
from uncork_workers.description import ServiceDescription
from uncork_workers.frames import (
    AnswerHead,
    Batch,
    Cancel,
    Failed,
    Frame,
    FrameDecoder,
    FrameError,
    Hello,
    Piece,
    Ready,
    Reply,
    encode_frame,
    frame_buffers,
    split_payload,
)

log = logging.getLogger("uncork.gateway")

# Below it, to copy the bodies of a batch costs less than to send them one by one.
_SMALL_BYTES = 64 * 1024

WorkerState = Literal["starting", "idle", "busy"]
Profile = dict[str, list[tuple[float, float]]]
"""By api: what batches cost, and the seconds that they took."""


class Executed(NamedTuple):
    """A reply and the bodies that came with it."""

    reply: Reply
    bodies: list[bytes]


Done = Callable[[Executed | WorkerLost], object]
"""What came of a batch: the reply, or that the worker died before it had answered."""

OnPiece = Callable[[AnswerHead | None, bytes], object]
"""Told the next bytes of an answer that is streamed; the first with a head."""


class PoolListener(Protocol):
    """Told what becomes of workers.

    ``worker`` numbers a connection, or that and those which took it over, and is never used for another.
    """

    def worker_imported(self, files: list[str]) -> None:
        """A worker has imported its service, from these files of the user's."""

    def worker_described(self, service: ServiceDescription) -> None:
        """A worker has said what it serves."""

    def worker_ready(self, worker: int) -> None:
        """A worker takes batches."""

    def worker_profiled(self, worker: int, profile: Profile) -> None:
        """A worker has warmed up with batches that took so long."""

    def worker_lost(self, worker: int) -> None:
        """The connection to a worker that took batches is gone."""

    def worker_connected(self, index: int) -> None:
        """A worker has said which one it is, and sets its service up now; not told of those that stand by."""

    def batch_finished(self, pid: int) -> None:
        """A worker process has answered a batch."""

    def worker_dropped(self, pid: int) -> None:
        """A worker does not keep to the protocol, and its connection was closed."""

    def worker_failed(self, failed: Failed, *, standby: bool) -> None:
        """A worker could not be made ready; ``standby`` if it was to take over from another."""

    def worker_stands_by(self, pid: int) -> None:
        """A worker is ready to take over."""

    def worker_retired(self, pid: int) -> None:
        """A worker from which another took over has ended its last batch, and was told to go."""


class WorkerPool:
    """Listens for workers and has them run batches, one at a time each."""

    def __init__(self, listener: PoolListener) -> None:
        self._listener = listener
        self._numbers = itertools.count(1)
        self._connections: dict[int, _Connection] = {}
        """Those in force: they take batches, or will when they are ready."""
        self._standbys: dict[int, _Connection] = {}
        self._retiring: set[_Connection] = set()
        self._servers: list[asyncio.Server] = []

    async def listen(self, socket_path: str, *, standby: bool = False) -> None:
        """Take connections on a Unix socket, which should lie in a folder that is the user's alone.

        Workers that connect to a ``standby`` one get no batches until they take over.
        """
        loop = asyncio.get_running_loop()
        connection = partial(self._connection, standby=standby)
        self._servers.append(await loop.create_unix_server(connection, socket_path))

    async def attach(self, connected: socket.socket) -> None:
        """Take a socket at whose other end is a worker already."""
        await asyncio.get_running_loop().connect_accepted_socket(self._connection, connected)

    def execute(
        self,
        worker: int,
        batch: Batch,
        bodies: Sequence[bytes],
        done: Done,
        *,
        on_piece: OnPiece | None = None,
    ) -> None:
        """Have a worker run a batch; ``done`` is called once, after this has returned.

        If ``on_piece`` is given, the answer may come in pieces before that.

        Raises:
            FrameError: if the batch is larger than a frame may be.
        """
        connection = self._connections.get(worker)
        if connection is None:
            asyncio.get_running_loop().call_soon(done, WorkerLost(f"worker {worker} is gone"))
        else:
            connection.execute(batch, bodies, done, on_piece)

    def cancel(self, batch: int) -> None:
        """Tell the worker that runs a batch, if one does, that nobody waits for more pieces."""
        connection = self._running(batch)
        if connection is not None:
            connection.cancel()

    def runner_of(self, batch: int) -> Hello | None:
        """What the worker that runs a batch has said of itself; None if no one does."""
        connection = self._running(batch)
        return None if connection is None else connection.hello

    def _running(self, batch: int) -> _Connection | None:
        running = (one for one in (*self._connections.values(), *self._retiring) if one.runs(batch))
        return next(running, None)

    def standbys(self, pids: Collection[int]) -> list[ServiceDescription]:
        """What the processes serve that are to take over.

        Raises:
            ValueError: if one of them has gone, or is not ready.
        """
        ready = {one.hello.pid: one.hello for one in self._standbys.values() if one.hello and one.is_ready}
        gone = set(pids) - ready.keys()
        if gone:
            raise ValueError(f"{len(gone)} of the new workers cannot take over any more")
        return [ready[pid].service for pid in pids]

    def any_left_by(self, pids: Collection[int]) -> bool:
        """Whether a worker would stay in force if these processes took over."""
        heirs = self._heirs(pids)
        return any(one.index is not None and one.index not in heirs for one in self._connections.values())

    def take_over(self, pids: Collection[int]) -> set[int]:
        """Have processes that stand by take the places of the workers of the same indexes.

        A worker that takes batches keeps its number, with the new one behind it from now on; it ends the
        batch that it runs, and is told to go. Returns the processes of these. If no other worker stays, those
        that have not said their index yet are told to go too: they may be of older code.
        """
        heirs = self._heirs(pids)
        going: set[int | None] = set(heirs) if self.any_left_by(pids) else {*heirs, None}
        leaving = set()
        for old in [one for one in self._connections.values() if one.index in going]:
            del self._connections[old.number]
            self._retiring.add(old)
            if old.is_ready and old.hello is not None:
                leaving.add(old.hello.pid)
                heir = heirs.pop(old.hello.index, None)
                if heir is None:
                    self._listener.worker_lost(old.number)
                else:
                    self._inherit(heir, old.number)
            old.retire()
        for heir in heirs.values():
            self._inherit(heir, heir.number)
            self._listener.worker_ready(heir.number)
        return leaving

    def _heirs(self, pids: Collection[int]) -> dict[int, _Connection]:
        """The connections of processes that stand by, by index."""
        standbys = ((one, one.hello) for one in self._standbys.values())
        return {hello.index: one for one, hello in standbys if hello is not None and hello.pid in pids}

    def _inherit(self, heir: _Connection, number: int) -> None:
        del self._standbys[heir.number]
        heir.number, heir.standby = number, False
        self._connections[number] = heir
        self._listener.worker_profiled(number, heir.profile)

    def states(self) -> list[WorkerState]:
        """What each connected worker does now."""
        connected = (*self._connections.values(), *self._standbys.values(), *self._retiring)
        return [connection.state for connection in connected]

    @property
    def any_ready(self) -> bool:
        """Whether at least one worker takes batches."""
        return any(connection.is_ready for connection in self._connections.values())

    async def close(self) -> None:
        """Close all connections; the workers then exit."""
        for server in self._servers:
            server.close()
        for connection in (*self._connections.values(), *self._standbys.values(), *self._retiring):
            connection.close()

    def _connection(self, *, standby: bool = False) -> _Connection:
        number = next(self._numbers)
        connection = _Connection(number, self._listener, standby=standby, gone=self._gone)
        (self._standbys if standby else self._connections)[number] = connection
        return connection

    def _gone(self, connection: _Connection) -> None:
        number = connection.number
        if connection in self._retiring:
            self._retiring.remove(connection)
            heir = self._connections.get(number)
            # If it died, or ran past its timeout, its number was given up, and the heir with it.
            if heir is not None and heir.state == "idle":
                self._listener.worker_ready(number)
        elif connection.standby:
            del self._standbys[number]
        else:
            del self._connections[number]
            if connection.is_ready:
                self._listener.worker_lost(number)


class _Run(NamedTuple):
    """A batch that a worker runs, and who is told of it."""

    batch: Batch
    done: Done
    on_piece: OnPiece | None


class _Connection(asyncio.Protocol):
    """One worker."""

    def __init__(
        self,
        number: int,
        listener: PoolListener,
        *,
        standby: bool,
        gone: Callable[[_Connection], object],
    ) -> None:
        self.number = number
        self.standby = standby
        self._listener = listener
        self._gone = gone
        self._decoder = FrameDecoder()
        self._transport: asyncio.Transport | None = None
        self._running: _Run | None = None
        self._is_streaming = False
        """Whether the first piece of the answer has come."""
        self._is_retiring = False
        self.is_ready = False
        self.hello: Hello | None = None
        self.profile: Profile = {}

    @property
    def index(self) -> int | None:
        return None if self.hello is None else self.hello.index

    @property
    def state(self) -> WorkerState:
        if self.standby or not self.is_ready:
            return "starting"
        return "idle" if self._running is None else "busy"

    def runs(self, batch: int) -> bool:
        return self._running is not None and self._running.batch.batch == batch

    def execute(self, batch: Batch, bodies: Sequence[bytes], done: Done, on_piece: OnPiece | None) -> None:
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

    def retire(self) -> None:
        self._is_retiring = True
        self._leave_if_idle()

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        try:
            for frame in self._decoder.feed(data):
                self._received(frame)
        except FrameError as error:
            log.error("worker %s talks nonsense and is dropped: %s", self.index, error)
            self.close()
            if self.hello is not None:
                self._listener.worker_dropped(self.hello.pid)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._running is not None:
            self._running.done(WorkerLost(f"worker {self.index} died"))
        self._gone(self)

    def _received(self, frame: Frame) -> None:
        match frame.message:
            case Hello():
                self._said_hello(frame.message)
            case Ready(files=files, profile=profile):
                self._listener.worker_imported(files)
                self.profile = profile
                self._is_now_ready()
            case Failed():
                self._listener.worker_failed(frame.message, standby=self.standby)
            case Reply():
                self._replied(frame.message, frame.payload)
            case Piece(batch=batch, head=head):
                self._streamed(batch, head, frame.payload)
            case Batch() | Cancel():
                raise FrameError("a worker sends no batches")

    def _said_hello(self, hello: Hello) -> None:
        self.hello = hello
        self._listener.worker_imported(hello.files)
        if not self.standby:
            self._listener.worker_connected(hello.index)
            self._listener.worker_described(hello.service)

    def _is_now_ready(self) -> None:
        self.is_ready = True
        if not self.standby:
            self._listener.worker_profiled(self.number, self.profile)
            self._listener.worker_ready(self.number)
        elif self.hello is not None:
            self._listener.worker_stands_by(self.hello.pid)

    def _leave_if_idle(self) -> None:
        if self._is_retiring and self._running is None:
            self.close()
            if self.hello is not None:
                self._listener.worker_retired(self.hello.pid)

    def _streamed(self, batch: int, head: AnswerHead | None, data: bytes) -> None:
        if self._running is None or self._running.batch.batch != batch or self._running.on_piece is None:
            raise FrameError(f"it streams the answer to batch {batch}, which nobody asked of it")
        if (head is None) != self._is_streaming:
            raise FrameError("the first piece of an answer has a head, and no other")
        self._is_streaming = True
        self._running.on_piece(head, data)

    def _replied(self, reply: Reply, payload: bytes) -> None:
        if self._running is None or self._running.batch.batch != reply.batch:
            raise FrameError(f"it answers batch {reply.batch}, which it was not given")
        batch, done, _ = self._running
        if not len(reply.statuses) == len(reply.lengths) == len(batch.lengths):
            raise FrameError(f"it answers {len(reply.statuses)} requests, the batch had {len(batch.lengths)}")
        bodies = split_payload(payload, reply.lengths)
        self._running = None
        done(Executed(reply, bodies))
        if self.hello is not None:
            self._listener.batch_finished(self.hello.pid)
        self._leave_if_idle()
