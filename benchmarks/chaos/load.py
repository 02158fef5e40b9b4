"""The well-behaved clients: an open loop of calls over gRPC, and of requests on keep-alive connections."""

import asyncio
import time
from collections import deque
from collections.abc import Callable
from itertools import count
from random import Random
from typing import cast

from benchmarks.chaos.faults import DRAIN, Fault
from benchmarks.chaos.grpc.calls import INFER, PREDICT, STREAM_INFER, call
from benchmarks.chaos.grpc.channels import Asked, Channels
from benchmarks.chaos.ledger import NO_FAULT, Ledger
from benchmarks.chaos.questions import Act, Question, ask, ask_rows
from benchmarks.chaos.waiting import comes_true
from uncork_loadtests.generator.http_reply import ReplyError, ReplyParser
from uncork_loadtests.servers import HOST

# Enough that no request waits for a connection while the gateway's queue is full, and few enough for it.
_MAX_CONNECTIONS = 1000
# More are closed after a burst, so that the gateway's descriptors rise only if it leaks them.
_MAX_IDLE = 100
_LONG_PAD = 20_000
_GRPC_SHARE = 0.3
_MAX_STREAMED = 5


class Connection(asyncio.Protocol):
    """A connection that enters its requests in the ledger."""

    def __init__(
        self,
        ledger: Ledger,
        *,
        idle: Callable[["Connection"], object] = lambda connection: None,
        gone: Callable[["Connection"], object] = lambda connection: None,
    ) -> None:
        self._ledger = ledger
        self._idle = idle
        self._gone = gone
        self._transport: asyncio.Transport | None = None
        self._parser = ReplyParser()
        self._asked: int | None = None
        self._last = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._idle(self)

    @property
    def usable(self) -> bool:
        return self._transport is not None and not self._transport.is_closing() and self._asked is None

    def ask(self, question: Question, *, own: Fault | None = None, share: float = 1.0) -> None:
        """Send a request, or the first part of it."""
        assert self._transport is not None
        self._asked = self._last = question.number
        self._ledger.send(question, time.monotonic(), own=own)
        self._transport.write(question.request[: int(len(question.request) * share)])

    def data_received(self, data: bytes) -> None:
        number = self._last
        try:
            reply = self._parser.feed(data)
        except ReplyError as error:
            self._asked = None
            self._ledger.garble(number, f"{error}: {data[:200]!r}")
            self.abort()
            return
        if reply is None:
            return
        self._asked = None
        self._ledger.answer(number, reply, time.monotonic())
        if reply.keep_alive:
            self._idle(self)
        elif self._transport is not None:
            self._transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        if self._asked is not None:
            self._ledger.close(self._asked, time.monotonic(), how=f"closed without an answer ({exc!r})")
            self._asked = None
        self._gone(self)

    def half_close(self) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write_eof()

    def abort(self) -> None:
        """Reset the connection, whatever is outstanding."""
        self._leave()
        if self._transport is not None:
            self._transport.abort()

    def close(self) -> None:
        """Close the connection, whatever is outstanding."""
        self._leave()
        if self._transport is not None:
            self._transport.close()

    def _leave(self) -> None:
        if self._asked is not None:
            self._ledger.leave(self._asked)
            self._asked = None


class Load:
    """Sends requests at Poisson times, whatever happens to earlier ones.

    Args:
        rate: requests per second.
        numbers: numbers of requests, shared with the injectors.
        grpc_port: port for part of the requests; 0 if all are sent over HTTP.
    """

    def __init__(
        self,
        ledger: Ledger,
        *,
        port: int,
        rate: float,
        seed: int,
        numbers: "count[int]",
        grpc_port: int = 0,
    ) -> None:
        self._ledger = ledger
        self._port = port
        self._channels = Channels(ledger, port=grpc_port, seed=seed) if grpc_port else None
        self._rate = rate
        self._random = Random(seed)
        self._numbers = numbers
        self._acts: deque[tuple[Act, Fault]] = deque()
        self._idle: deque[Connection] = deque()
        self._waiting: deque[tuple[Question, Fault | None]] = deque()
        self._connections: set[Connection] = set()
        self._opening: set[asyncio.Task[None]] = set()
        self._stopping = False
        self.factor = 1.0
        """Multiple of the rate."""
        self.draining = False
        """Whether the gateway may refuse connections."""

    async def run(self) -> None:
        """Send until :meth:`stop`."""
        self._stopping = False
        due_s = time.monotonic()
        while not self._stopping:
            now_s = time.monotonic()
            while due_s <= now_s:
                for _ in range(self._fire()):
                    due_s += self._random.expovariate(self._rate * self.factor)
            await asyncio.sleep(due_s - now_s)

    def stop(self) -> None:
        self._stopping = True
        self._waiting.clear()

    def slip_in(self, act: Act, fault: Fault) -> None:
        """Make the next request a fault."""
        self._acts.append((act, fault))

    async def close(self) -> None:
        """Close all connections; outstanding requests count as left by the client."""
        self.stop()
        for task in list(self._opening):
            task.cancel()
        await asyncio.gather(*self._opening, return_exceptions=True)
        if self._channels is not None:
            await self._channels.close()
        for connection in list(self._connections):
            connection.close()
        await comes_true(lambda: not self._connections)

    def _fire(self) -> int:
        """Send what is next; returns the number of requests."""
        if self._channels is not None and self._random.random() < _GRPC_SHARE:
            calls = self._next_calls()
            self._channels.ask(calls)
            return len(calls)
        self._fire_request()
        return 1

    def _fire_request(self) -> None:
        question, own = self._next()
        while self._idle:
            connection = self._idle.popleft()
            if connection.usable:
                connection.ask(question, own=own)
                return
        self._waiting.append((question, own))
        if len(self._connections) + len(self._opening) < _MAX_CONNECTIONS:
            task = asyncio.get_running_loop().create_task(self._open())
            self._opening.add(task)
            task.add_done_callback(self._opening.discard)

    def _next(self) -> tuple[Question, Fault | None]:
        number = next(self._numbers)
        if self._acts:
            act, fault = self._acts.popleft()
            return ask(number, act=act), fault
        chance = self._random.random()
        if chance < 0.1:
            return ask_rows(number, rows=self._random.randint(1, 5)), None
        pad = _LONG_PAD if chance < 0.11 else self._random.randrange(200)
        return ask(number, pad="x" * pad), None

    def _next_calls(self) -> list[Asked]:
        """Return the question of a unary call, or those of a stream."""
        kind = self._random.choice((INFER, PREDICT, STREAM_INFER))
        most = _MAX_STREAMED if kind == STREAM_INFER else 1
        return [self._next_call(kind) for _ in range(self._random.randint(1, most))]

    def _next_call(self, kind: str) -> Asked:
        number = next(self._numbers)
        if self._acts:
            act, fault = self._acts.popleft()
            return call(number, kind, act=act), fault
        length = _LONG_PAD if self._random.random() < 0.01 else self._random.randrange(200)
        rows = 3 if self._random.random() < 0.1 else 1
        return call(number, kind, pads=["x" * length] * rows), None

    async def _open(self) -> None:
        connection = Connection(self._ledger, idle=self._is_idle, gone=self._connections.discard)
        try:
            await asyncio.get_running_loop().create_connection(lambda: connection, HOST, self._port)
        except OSError as error:
            if not self.draining:
                self._ledger.complain(NO_FAULT, f"connection refused: {error}")
            elif self._waiting:
                self._waiting.popleft()
                self._ledger.refuse(DRAIN)

    def _is_idle(self, connection: Connection) -> None:
        self._connections.add(connection)
        if self._waiting:
            question, own = self._waiting.popleft()
            connection.ask(question, own=own)
        elif len(self._idle) < _MAX_IDLE:
            self._idle.append(connection)
        else:
            connection.close()
