"""The gateway's end of the sockets to the worker processes."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple, Protocol, cast

from uncork_dispatcher import WorkerLost
from uncork_workers.description import ServiceDescription
from uncork_workers.frames import (
    Batch,
    Failed,
    Frame,
    FrameDecoder,
    FrameError,
    Hello,
    Ready,
    Reply,
    frame_buffers,
    split_payload,
)

log = logging.getLogger("uncork.gateway")

# Below it, to copy the bodies of a batch costs less than to send them one by one.
_SMALL_BYTES = 64 * 1024

WorkerState = Literal["starting", "idle", "busy"]


class Executed(NamedTuple):
    """A reply and the bodies that came with it."""

    reply: Reply
    bodies: list[bytes]


Done = Callable[[Executed | WorkerLost], object]
"""What came of a batch: the reply, or that the worker died before it had answered."""


class PoolListener(Protocol):
    """Told what becomes of workers. ``worker`` numbers a connection and is never used twice."""

    def worker_described(self, service: ServiceDescription) -> None:
        """A worker has imported its service."""

    def worker_ready(self, worker: int) -> None:
        """A worker takes batches."""

    def worker_lost(self, worker: int) -> None:
        """The connection to a worker that took batches is gone."""

    def worker_failed(self, failed: Failed) -> None:
        """A worker could not load or set up its service."""


class WorkerPool:
    """Listens for workers and has them run batches, one at a time each."""

    def __init__(self, listener: PoolListener) -> None:
        self._listener = listener
        self._numbers = itertools.count(1)
        self._connections: dict[int, _Connection] = {}
        self._server: asyncio.Server | None = None

    async def listen(self, socket_path: str) -> None:
        """Take connections on a Unix socket, which should lie in a folder that is the user's alone."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_unix_server(self._connection, socket_path)

    def execute(self, worker: int, batch: Batch, bodies: Sequence[bytes], done: Done) -> None:
        """Have a worker run a batch; ``done`` is called once, after this has returned.

        Raises:
            FrameError: if the batch is larger than a frame may be.
        """
        connection = self._connections.get(worker)
        if connection is None:
            asyncio.get_running_loop().call_soon(done, WorkerLost(f"worker {worker} is gone"))
        else:
            connection.execute(batch, bodies, done)

    def index_of(self, worker: int) -> int | None:
        """The supervisor's number of the process behind a worker, if it is still connected."""
        connection = self._connections.get(worker)
        return None if connection is None else connection.index

    def states(self) -> list[WorkerState]:
        """What each connected worker does now."""
        return [connection.state for connection in self._connections.values()]

    @property
    def any_ready(self) -> bool:
        """Whether at least one worker takes batches."""
        return any(state != "starting" for state in self.states())

    async def close(self) -> None:
        """Close all connections; the workers then exit."""
        if self._server is not None:
            self._server.close()
        for connection in list(self._connections.values()):
            connection.close()

    def _connection(self) -> _Connection:
        number = next(self._numbers)
        connection = _Connection(number, self._listener, forget=self._connections.pop)
        self._connections[number] = connection
        return connection


class _Connection(asyncio.Protocol):
    """One worker."""

    def __init__(self, number: int, listener: PoolListener, *, forget: Callable[[int], object]) -> None:
        self._number = number
        self._listener = listener
        self._forget = forget
        self._decoder = FrameDecoder()
        self._transport: asyncio.Transport | None = None
        self._running: tuple[Batch, Done] | None = None
        self._ready = False
        self.index: int | None = None

    @property
    def state(self) -> WorkerState:
        if not self._ready:
            return "starting"
        return "idle" if self._running is None else "busy"

    def execute(self, batch: Batch, bodies: Sequence[bytes], done: Done) -> None:
        assert self._transport is not None
        frame = frame_buffers(batch, bodies)
        self._running = (batch, done)
        if sum(map(len, bodies)) < _SMALL_BYTES:
            self._transport.write(b"".join(frame))
        else:
            self._transport.writelines(frame)

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

    def connection_lost(self, exc: Exception | None) -> None:
        self._forget(self._number)
        if self._running is not None:
            self._running[1](WorkerLost(f"worker {self.index} died"))
        if self._ready:
            self._listener.worker_lost(self._number)

    def _received(self, frame: Frame) -> None:
        match frame.message:
            case Hello(index=index, service=service):
                self.index = index
                self._listener.worker_described(service)
            case Ready():
                self._ready = True
                self._listener.worker_ready(self._number)
            case Failed():
                self._listener.worker_failed(frame.message)
            case Reply():
                self._replied(frame.message, frame.payload)
            case Batch():
                raise FrameError("a worker sends no batches")

    def _replied(self, reply: Reply, payload: bytes) -> None:
        if self._running is None or self._running[0].batch != reply.batch:
            raise FrameError(f"it answers batch {reply.batch}, which it was not given")
        batch, done = self._running
        if not len(reply.statuses) == len(reply.lengths) == len(batch.lengths):
            raise FrameError(f"it answers {len(reply.statuses)} requests, the batch had {len(batch.lengths)}")
        bodies = split_payload(payload, reply.lengths)
        self._running = None
        done(Executed(reply, bodies))
