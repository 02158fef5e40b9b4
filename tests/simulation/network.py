"""Connections without sockets: bytes arrive late, in pieces, or never."""

from __future__ import annotations

import asyncio
import hashlib
import socket
from collections.abc import Awaitable, Callable
from random import Random
from typing import Any, Protocol

from anyio._backends._asyncio import StreamProtocol

from tests.dispatcher.virtual_loop import VirtualLoop
from uncork_gateway.backends.worker_connection import WorkerConnection

_MOST_TURNS = 100_000
_LONGEST_S = 1000.0
_ALL = 2**20
_HIGH_WATER_BYTES = 64 * 1024


class Wedged(BaseException):
    """The schedule does not end."""


class SimulatedLoop(VirtualLoop):
    """A loop on virtual time that keeps the factories of its servers, and ends where time stands still.

    Attributes:
        servers: by path, what makes the protocol of a connection.
        hosts: by host, what connects a protocol with it.
    """

    def __init__(self) -> None:
        super().__init__()
        self.servers: dict[str, Callable[[], Any]] = {}
        self.hosts: dict[str, Callable[[Any], Awaitable[End]]] = {}
        self._turns = 0

    def _run_once(self) -> None:
        # Not in a callback, where asyncio would only log it.
        self._turns += 1
        if self._turns == _MOST_TURNS or self._virtual.now > _LONGEST_S:
            raise Wedged(f"{self._turns} turns of the loop, up to {self.now():g} s")
        super()._run_once()  # type: ignore[misc]

    def now(self) -> float:
        return self._virtual.now

    async def create_unix_server(  # type: ignore[override]
        self, factory: Callable[[], Any], path: Any = None, **_: Any
    ) -> Any:
        self.servers[path] = factory
        return _Listening()

    async def create_connection(  # type: ignore[override]
        self, factory: Callable[[], Any], host: Any = None, port: Any = None, **_: Any
    ) -> Any:
        protocol = factory()
        end = await self.hosts[host](protocol)
        protocol.connection_made(end)
        return end, protocol

    def timers(self) -> list[asyncio.TimerHandle]:
        """Return the timers that would still fire."""
        return [timer for timer in self._scheduled if not timer.cancelled()]  # type: ignore[attr-defined]


class _Listening:
    def close(self) -> None:
        """No one connects any more when a schedule ends."""


class Peer(Protocol):
    """What asyncio calls of a protocol."""

    def data_received(self, data: bytes, /) -> None: ...
    def eof_received(self) -> bool | None: ...
    def connection_lost(self, exc: Exception | None, /) -> None: ...
    def pause_writing(self) -> None: ...
    def resume_writing(self) -> None: ...


class Network:
    """Makes connections; ``trace`` is a digest of all that arrives, and when."""

    def __init__(self, loop: SimulatedLoop) -> None:
        self.loop = loop
        self.trace = hashlib.blake2b(digest_size=8)
        self.ends: list[End] = []

    def connect(self, name: str, server: Any, client: Peer, random: Random) -> End:
        """Connect two protocols; return the client's end."""
        there, here = End(self, f"{name}<", server, random), End(self, f"{name}>", client, random)
        here.is_client = True
        there.peer, here.peer = here, there
        self.ends += [there, here]
        server.connection_made(there)
        return here


class End(asyncio.Transport):
    """One end of a connection. What is written here arrives at the protocol of the peer."""

    peer: End
    is_client = False

    def __init__(self, network: Network, name: str, protocol: Any, random: Random) -> None:
        super().__init__()
        self.name = name
        self.protocol = protocol
        self._network, self._loop, self._random = network, network.loop, random
        self._latency_s, self._most_bytes = random.choice(
            [(0.0, _ALL), (0.0, _ALL), (0.0002, _ALL), (0.03, _ALL), (0.0, 40), (0.0002, 40), (0.003, 300)]
        )
        self._high, self._kernel = random.choice(
            [(_HIGH_WATER_BYTES, _ALL), (_HIGH_WATER_BYTES, 0), (100, 0)]
        )
        self._out = bytearray()
        self._pump: asyncio.Handle | None = None
        self._reading = True
        self._writes_end = self._closing = self._paused_peer = False
        self._eof = False
        """True once the peer has ended its side."""
        self._written = self._arrived = 0
        self._awaited: list[tuple[int, Callable[[], None]]] = []
        self.lost_at: float | None = None
        """When the connection ended for the protocol of this end."""

    @property
    def is_uneven(self) -> bool:
        """True if bytes arrive in pieces, or may wait."""
        return min(self._most_bytes, self.peer._most_bytes) < _ALL

    # asyncio.Transport

    def write(self, data: Any) -> None:
        if self._writes_end:
            raise RuntimeError("Cannot call write() after write_eof()")
        if self.lost_at is not None or (self._closing and not self._out):
            return
        self._out += data
        self._written += len(data)
        if self.get_write_buffer_size() > self._high and not self._paused_peer:
            self._paused_peer = True
            self.protocol.pause_writing()
        self._send()

    def when_arrived(self, then: Callable[[], None]) -> None:
        """Call ``then`` when all that was written so far has arrived."""
        self._awaited.append((self._written, then))

    def get_write_buffer_size(self) -> int:
        return max(0, len(self._out) - self._kernel)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Keep its own limit, which may be lower."""

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        if not (self._closing or self._writes_end):
            self._writes_end = True
            self._send()

    def close(self) -> None:
        if not self._closing:
            self._closing = True
            self._send()

    def abort(self) -> None:
        """Discard what has not arrived; the peer notices."""
        self._out.clear()
        self._closing = True
        self._lose(None)
        self._loop.call_later(self._latency_s, self.peer.reset)

    def is_closing(self) -> bool:
        return self._closing

    def pause_reading(self) -> None:
        self._reading = False

    def resume_reading(self) -> None:
        if not self._reading and not self._closing:
            self._reading = True
            self.peer._send()
            if self._eof:  # asyncio reports an end again after which this side stayed open
                self._loop.call_soon(self._ended)

    def set_protocol(self, protocol: Any) -> None:
        self.protocol = protocol

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        has_socket = name == "socket" and isinstance(self.protocol, WorkerConnection | StreamProtocol)
        return _Socket(self) if has_socket else default

    @property
    def is_readable(self) -> bool:
        """True if bytes or an end have arrived that the protocol has not read."""
        has_arrived = bool(self.peer._out) and self.peer._pump is None
        return has_arrived or self._eof or self.lost_at is not None

    # The network

    def reset(self) -> None:
        """End the connection as if the other side had vanished."""
        self._out.clear()
        self._closing = True
        self._lose(ConnectionResetError("reset by peer"))

    def _lose(self, error: Exception | None) -> None:
        if self.lost_at is None:
            self.lost_at = self._loop.time()
            self._note(b"lost")
            if self._pump is not None:
                self._pump.cancel()
            self._loop.call_soon(self.protocol.connection_lost, error)

    def _send(self) -> None:
        if self._pump is None and self.lost_at is None:
            self._pump = self._loop.call_later(self._latency_s, self._arrive)

    def _arrive(self) -> None:
        self._pump = None
        if self._out and self.peer._closing and (self.peer.is_client or self.peer.lost_at is not None):
            self.peer.reset()
            self.reset()
        elif self._out and self.peer._closing:
            self._out.clear()  # it still writes, but does not read: the bytes stay in the kernel
            self._send()
        elif self._out and self.peer._reading:
            count = self._random.randint(1, self._most_bytes) if self._most_bytes < _ALL else len(self._out)
            piece = bytes(self._out[:count])
            del self._out[:count]
            self.peer._note(piece)
            self.peer.protocol.data_received(piece)
            self._arrived += len(piece)
            while self._awaited and self._awaited[0][0] <= self._arrived:
                self._awaited.pop(0)[1]()
            if self._paused_peer and not self.get_write_buffer_size():
                self._paused_peer = False
                self.protocol.resume_writing()
            if self._out or self._writes_end or self._closing:
                self._send()
        elif not self._out and (self._writes_end or self._closing):
            if not self.peer._eof:
                self.peer._ended()
            if self._closing:
                self._lose(None)

    def _ended(self) -> None:
        self._eof = True
        if self._reading and self.lost_at is None and not self._closing:
            self._note(b"eof")
            if not self.protocol.eof_received():
                self.close()

    def _note(self, what: bytes) -> None:
        self._network.trace.update(b"%r %b %b\n" % (self._loop.time(), self.name.encode(), what))


class _Socket:
    """A socket that cannot carry files, so that batches travel in their frames."""

    family = socket.AF_INET

    def __init__(self, end: End) -> None:
        self.end = end

    def getsockname(self) -> tuple[str, int]:
        return self.end.name, 0

    getpeername = getsockname

    def setsockopt(self, level: int, name: int, value: int) -> None:
        assert not self.end.is_closing()

    def fileno(self) -> int:
        raise OSError
