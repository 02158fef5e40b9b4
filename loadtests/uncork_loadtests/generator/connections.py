"""Keep-alive connections with one request at a time, and the part that closed and open loops share.

Everything runs on one event loop; nothing needs a lock.
"""

import asyncio
import heapq
import math
import ssl
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import partial
from itertools import count
from typing import cast

from uncork_dispatcher.alarm import make_alarm
from uncork_loadtests.generator.answers import AnswerLog, Asked
from uncork_loadtests.generator.http_reply import Reply, ReplyError, ReplyParser
from uncork_loadtests.generator.samples import LOST, PENDING, UNANSWERED, UNKNOWN
from uncork_loadtests.traffic.payloads import source
from uncork_loadtests.traffic.plan import Plan

_CONNECT_SECONDS = 10.0
# Without a limit, an overloaded generator would send on time and read its answers late, unnoticed.
_MAX_CALLS_PER_TURN = 8


class Traffic(ABC):
    """One process's share of the requests of a plan: sends them and records each outcome."""

    def __init__(self, plan: Plan, *, share: int = 0) -> None:
        self.plan = plan
        self.answers = AnswerLog()
        self.timer = Timer()
        self.start_s = 0.0
        self.stopping = False
        self.halted = False
        self.outstanding = 0
        self.most_connections = 0
        self._make = source(plan)
        self._number = share
        self._connections: set[Connection] = set()
        self._opening: set[Connection] = set()
        self._opening_tasks: set[asyncio.Task[None]] = set()
        self._closed = False
        self._tls = plan.tls.context() if plan.is_https else None
        self._over: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    @abstractmethod
    async def reach(self) -> None:
        """Connect to the server; raise ConnectionError if that fails."""

    @abstractmethod
    def begin(self, start_s: float) -> None:
        """Start the warm-up, so that the measured time starts at `start_s` of time.monotonic()."""

    @abstractmethod
    def on_idle(self, connection: "Connection") -> None:
        """Use an open connection that has no outstanding request."""

    @abstractmethod
    def on_closed(self, connection: "Connection") -> None:
        """Replace a closed connection if needed; its outstanding request is already recorded."""

    @abstractmethod
    def on_connect_error(self, error: OSError) -> None:
        """Handle a connection that could not be opened during the run."""

    @abstractmethod
    def finish(self) -> None:
        """Send nothing scheduled after the measured time."""

    @abstractmethod
    def unsent(self) -> Sequence[tuple[float, float]]:
        """Return scheduled and fired time of each due request that is not sent yet."""

    async def connect(self, count: int) -> None:
        """Open `count` connections; raise ConnectionError if one fails."""
        new = [Connection(self) for _ in range(count)]
        outcomes = await asyncio.gather(*map(self._connect, new), return_exceptions=True)
        for outcome in outcomes:
            if outcome is not None:
                raise outcome

    def open(self, connection: "Connection") -> None:
        """Open or reopen a connection during the run."""
        if self._closed:
            return
        self._opening.add(connection)
        task = asyncio.get_running_loop().create_task(self._connect(connection))
        self._opening_tasks.add(task)
        task.add_done_callback(partial(self._connect_done, connection))

    async def _connect(self, connection: "Connection") -> None:
        loop, (host, port) = asyncio.get_running_loop(), self.plan.address
        try:
            async with asyncio.timeout(_CONNECT_SECONDS):
                await loop.create_connection(lambda: connection, host, port, ssl=self._tls)
        except OSError as error:  # TimeoutError is one
            reason = str(error) or f"no response within {_CONNECT_SECONDS:g} s"
            if isinstance(error, ssl.SSLCertVerificationError):
                reason = f"its certificate is not trusted: {error.verify_message}; see --ca and --insecure"
            raise ConnectionError(f"cannot connect to {host}:{port}: {reason}") from error

    def _connect_done(self, connection: "Connection", task: asyncio.Task[None]) -> None:
        self._opening_tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is None:
            return
        self._opening.discard(connection)
        if isinstance(error, OSError):
            self.on_connect_error(error)
        else:
            self.fail(error)

    def send(self, connection: "Connection", *, scheduled_s: float, fired_s: float, now_s: float) -> None:
        """Send the next request; end the run if its body cannot be made."""
        try:
            request, expected = self._make(self._number)
        except ValueError as error:
            self.fail(error)
            return
        self._number += self.plan.processes
        connection.send(Asked(scheduled_s, fired_s, now_s, request, expected))

    def opened(self, connection: "Connection") -> None:
        # Not in _connect_done, which runs later: the connection must be in exactly one set meanwhile.
        self._opening.discard(connection)
        self._connections.add(connection)
        self.most_connections = max(self.most_connections, len(self._connections))
        if self.start_s:
            self.on_idle(connection)

    def closed(self, connection: "Connection", asked: Asked | None) -> None:
        """Remove a closed connection; `asked` is the request lost with it."""
        self._connections.discard(connection)
        if asked is not None:
            connection.due_s = time.monotonic() + self.plan.think_s
            self.unanswered(asked, status=LOST)
        self.on_closed(connection)
        self.settle()

    def answered(self, asked: Asked, reply: Reply, *, first_s: float, now_s: float) -> None:
        self.answers.add(asked, reply, first_s=first_s, now_s=now_s, start_s=self.start_s)
        self.outstanding -= 1

    def unanswered(self, asked: Asked, *, status: int) -> None:
        """Record a request that stays without a response."""
        self.answers.add_missing(asked, status=status, start_s=self.start_s)
        self.outstanding -= 1

    def never_sent(self, scheduled_s: float, fired_s: float, *, status: int) -> None:
        """Record a request that had no connection."""
        self.answers.add_unsent(scheduled_s, fired_s, status=status, start_s=self.start_s)
        self.outstanding -= 1

    def settle(self) -> None:
        """End the run if nothing more is sent and no response is outstanding."""
        if self.stopping and not self.outstanding and not self._over.done():
            self._over.set_result(None)

    def fail(self, error: BaseException) -> None:
        self.stopping = True
        if not self._over.done():
            self._over.set_exception(error)

    def halt(self) -> None:
        """End the run now, without waiting for outstanding responses."""
        self.stopping = self.halted = True
        if not self._over.done():
            self._over.set_result(None)

    async def wait(self, seconds: float) -> None:
        """Return after `seconds` or at the end of the run; raise its error."""
        await asyncio.wait({self._over}, timeout=max(0.0, seconds))
        if self._over.done():
            self._over.result()

    async def drain(self, seconds: float) -> None:
        """Wait up to `seconds` for outstanding responses, unless halted, then record what has none."""
        if not self.halted:
            self.finish()
            self.settle()
            await self.wait(seconds)
        status = PENDING if self.halted else UNANSWERED
        for connection in self._connections:
            asked = connection.forget()
            if asked is not None:
                self.unanswered(asked, status=status)
        for scheduled_s, fired_s in self.unsent():
            self.never_sent(scheduled_s, fired_s, status=status)

    async def close(self) -> None:
        self.stopping = self._closed = True
        self.timer.close()
        for task in self._opening_tasks:
            task.cancel()
        await asyncio.gather(*self._opening_tasks, return_exceptions=True)
        for connection in self._connections:
            connection.forget()
        await asyncio.gather(*(connection.close() for connection in list(self._connections)))
        if self._over.done():
            self._over.exception()  # mark it as retrieved: another error may have been raised instead


class Connection(asyncio.Protocol):
    """A connection that may be opened again after it was lost."""

    def __init__(self, traffic: Traffic) -> None:
        self.due_s = 0.0
        """Closed loop: end of the client's think time."""
        self.opened_s = 0.0
        self.asked: Asked | None = None
        self._first_s = UNKNOWN
        self._traffic = traffic
        self._transport: asyncio.Transport | None = None
        self._lost = asyncio.Event()
        self._parser = ReplyParser()

    @property
    def is_idle(self) -> bool:
        """True if the connection is open and has no outstanding request."""
        return self._transport is not None and self.asked is None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self.opened_s = time.monotonic()
        self._lost.clear()
        self._parser = ReplyParser()
        self._first_s = UNKNOWN
        self._traffic.opened(self)

    def send(self, asked: Asked) -> None:
        """Send a request; the connection must be idle."""
        assert self._transport is not None
        self.asked = asked
        self._transport.write(asked.request)

    def data_received(self, data: bytes) -> None:
        try:
            reply = self._parser.feed(data)
            asked = self.asked
            if asked is None:
                raise ReplyError("received data without a request")
        except ReplyError as error:
            self._traffic.fail(error)
            return
        if reply is None:
            if self._parser.has_chunk and math.isnan(self._first_s):
                self._first_s = time.monotonic()
            return
        now_s = time.monotonic()
        self.asked = None
        first_s, self._first_s = self._first_s, UNKNOWN
        if math.isnan(first_s):
            first_s = now_s
        traffic = self._traffic
        traffic.answered(asked, reply, first_s=first_s, now_s=now_s)
        self.due_s = now_s + traffic.plan.think_s
        if reply.keep_alive:
            traffic.on_idle(self)
            traffic.settle()
        elif self._transport is not None:
            self._transport.close()  # connection_lost does the rest

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._lost.set()
        self._traffic.closed(self, self.forget())

    def forget(self) -> Asked | None:
        """Return the outstanding request and wait for it no longer."""
        asked, self.asked = self.asked, None
        return asked

    async def close(self) -> None:
        """Abort the connection and wait until it is closed."""
        if self._transport is not None:
            self._transport.abort()
            await self._lost.wait()


class Timer:
    """Calls functions in the running event loop at times of time.monotonic()."""

    def __init__(self) -> None:
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._order = count()
        self._alarm = make_alarm(self._on_alarm)

    def call_at(self, when_s: float, function: Callable[[], None]) -> None:
        """Call once, at `when_s` or, if that is past, as soon as possible."""
        entry = (when_s, next(self._order), function)
        heapq.heappush(self._due, entry)
        if self._due[0] is entry:
            self._alarm.set(when_s, time.monotonic())

    def close(self) -> None:
        """Drop all scheduled calls."""
        self._due.clear()
        self._alarm.close()

    def _on_alarm(self) -> None:
        for _ in range(_MAX_CALLS_PER_TURN):
            if not self._due or self._due[0][0] > time.monotonic():
                break
            heapq.heappop(self._due)[2]()
        if self._due:
            self._alarm.set(self._due[0][0], time.monotonic())
