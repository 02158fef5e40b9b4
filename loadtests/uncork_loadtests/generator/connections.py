"""Keep-alive connections with one request at a time, and what closed and open loops have in common.

All of it runs on one event loop, so nothing needs a lock.
"""

import asyncio
import math
import ssl
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import partial
from typing import cast

from uncork_loadtests.generator.answers import Answers, Asked
from uncork_loadtests.generator.http_reply import Reply, ReplyError, ReplyParser
from uncork_loadtests.generator.samples import LOST, NOT_TOLD, UNANSWERED
from uncork_loadtests.generator.timer import Timer
from uncork_loadtests.traffic.payloads import source
from uncork_loadtests.traffic.plan import Plan

_CONNECT_SECONDS = 10.0


class Traffic(ABC):
    """One process's share of the requests of a plan: sends them, and records what comes of each."""

    def __init__(self, plan: Plan, *, share: int = 0) -> None:
        self.plan = plan
        self.answers = Answers()
        self.timer = Timer()
        self.start_s = 0.0
        self.stopping = False
        self.halted = False
        self.outstanding = 0
        self.most_connections = 0
        self._make = source(plan)
        self._number = share
        self._connections: set[Connection] = set()
        self._coming: set[Connection] = set()
        self._opening: set[asyncio.Task[None]] = set()
        self._closed = False
        self._tls = plan.tls.context() if plan.is_https else None
        self._over: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    @abstractmethod
    def begin(self, start_s: float) -> None:
        """Begin with the warm-up, so that what is measured starts at `start_s` of time.monotonic()."""

    @abstractmethod
    def idle(self, connection: "Connection") -> None:
        """Use a connection that is open and waits for no answer."""

    @abstractmethod
    def gone(self, connection: "Connection") -> None:
        """Do without a connection that was closed; what was asked on it is recorded already."""

    @abstractmethod
    def refused(self, error: OSError) -> None:
        """Do without a connection that could not be had while requests are being sent."""

    @abstractmethod
    def finish(self) -> None:
        """Send nothing beyond the measured time."""

    @abstractmethod
    def waiting(self) -> Sequence[tuple[float, float]]:
        """When each request that was not sent yet was scheduled, and when it was fired."""

    async def connect(self, count: int) -> None:
        """Open `count` connections; ConnectionError if one cannot be had."""
        new = [Connection(self) for _ in range(count)]
        outcomes = await asyncio.gather(*map(self._connect, new), return_exceptions=True)
        for outcome in outcomes:
            if outcome is not None:
                raise outcome

    def open(self, connection: "Connection") -> None:
        """Open a connection, new or once more, while requests are being sent."""
        if self._closed:
            return
        self._coming.add(connection)
        task = asyncio.get_running_loop().create_task(self._connect(connection))
        self._opening.add(task)
        task.add_done_callback(partial(self._opened, connection))

    @property
    def coming(self) -> int:
        """Connections that are being opened."""
        return len(self._coming)

    @property
    def connections(self) -> int:
        """Those that are open or being opened."""
        return len(self._connections) + len(self._coming)

    async def _connect(self, connection: "Connection") -> None:
        loop, (host, port) = asyncio.get_running_loop(), self.plan.address
        try:
            async with asyncio.timeout(_CONNECT_SECONDS):
                await loop.create_connection(lambda: connection, host, port, ssl=self._tls)
        except OSError as error:  # TimeoutError is one
            reason = str(error) or f"no answer within {_CONNECT_SECONDS:g} s"
            if isinstance(error, ssl.SSLCertVerificationError):
                reason = f"its certificate is not trusted: {error.verify_message}; see --ca and --insecure"
            raise ConnectionError(f"cannot connect to {host}:{port}: {reason}") from error

    def _opened(self, connection: "Connection", task: asyncio.Task[None]) -> None:
        self._opening.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is None:
            return
        self._coming.discard(connection)
        if isinstance(error, OSError):
            self.refused(error)
        else:
            self.fail(error)

    def send(self, connection: "Connection", *, scheduled_s: float, fired_s: float, now_s: float) -> None:
        """Send the next request."""
        request, expected = self._make(self._number)
        self._number += self.plan.processes
        connection.ask(Asked(scheduled_s, fired_s, now_s, request, expected))

    def joined(self, connection: "Connection") -> None:
        """Note a connection that is open now."""
        # Not only when the task that opened it ends: what happens until then must find it in one place.
        self._coming.discard(connection)
        self._connections.add(connection)
        self.most_connections = max(self.most_connections, len(self._connections))
        if self.start_s:
            self.idle(connection)

    def left(self, connection: "Connection", asked: Asked | None) -> None:
        """Note a connection that was closed, perhaps before it answered."""
        self._connections.discard(connection)
        if asked is not None:
            self.unanswered(asked.scheduled_s, asked.fired_s, asked.sent_s, status=LOST)
        self.gone(connection)
        self.settle()

    def answered(self, asked: Asked, reply: Reply, *, first_s: float, now_s: float) -> None:
        """Record an answer that began at `first_s` and was whole at `now_s`."""
        self.answers.add(asked, reply, first_s=first_s, now_s=now_s, start_s=self.start_s)
        self.outstanding -= 1

    def unanswered(self, scheduled_s: float, fired_s: float, sent_s: float, *, status: int) -> None:
        """Record a request that has no answer and will have none."""
        self.answers.add_missing(scheduled_s, fired_s, sent_s, status=status, start_s=self.start_s)
        self.outstanding -= 1

    def settle(self) -> None:
        """Say that all is over, if it is: nothing more is sent, and no answer is waited for."""
        if self.stopping and not self.outstanding and not self._over.done():
            self._over.set_result(None)

    def fail(self, error: BaseException) -> None:
        """End the run with `error`."""
        self.stopping = True
        if not self._over.done():
            self._over.set_exception(error)

    def halt(self) -> None:
        """End the run now; requests that are not answered yet are left out."""
        self.stopping = self.halted = True
        if not self._over.done():
            self._over.set_result(None)

    async def wait(self, seconds: float) -> None:
        """Return after `seconds`, or as soon as all is over; raise what failed."""
        await asyncio.wait({self._over}, timeout=max(0.0, seconds))
        if self._over.done():
            self._over.result()

    async def drain(self, seconds: float) -> None:
        """Wait up to `seconds` for the answers still to come, and record those that do not."""
        if not self.halted:
            self.finish()
            self.settle()
            await self.wait(seconds)
        if self.halted:
            return
        for connection in self._connections:
            asked = connection.give_up()
            if asked is not None:
                self.unanswered(asked.scheduled_s, asked.fired_s, asked.sent_s, status=UNANSWERED)
        for scheduled_s, fired_s in self.waiting():
            self.unanswered(scheduled_s, fired_s, NOT_TOLD, status=UNANSWERED)

    async def close(self) -> None:
        """Close every connection, whatever is still outstanding."""
        self.stopping = self._closed = True
        self.timer.close()
        for task in self._opening:
            task.cancel()
        await asyncio.gather(*self._opening, return_exceptions=True)
        for connection in self._connections:
            connection.give_up()
        await asyncio.gather(*(connection.close() for connection in list(self._connections)))
        if self._over.done():
            self._over.exception()  # mark it as seen: another error may have been raised instead


class Connection(asyncio.Protocol):
    """A connection; it may be opened again when it was lost."""

    def __init__(self, traffic: Traffic) -> None:
        self.due_s = 0.0
        """Closed loop: when the client has thought enough."""
        self.asked: Asked | None = None
        self._first_s = NOT_TOLD
        self._traffic = traffic
        self._transport: asyncio.Transport | None = None
        self._lost = asyncio.Event()
        self._parser = ReplyParser()

    @property
    def is_idle(self) -> bool:
        """Whether it is open and waits for no answer."""
        return self._transport is not None and self.asked is None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Be there for a request."""
        self._transport = cast(asyncio.Transport, transport)
        self._lost.clear()
        self._parser = ReplyParser()
        self._first_s = NOT_TOLD
        self._traffic.joined(self)

    def ask(self, asked: Asked) -> None:
        """Send a request; the connection must be idle."""
        assert self._transport is not None
        self.asked = asked
        self._transport.write(asked.request)

    def data_received(self, data: bytes) -> None:
        """Take a piece of the answer; the last piece makes the connection idle."""
        try:
            reply = self._parser.feed(data)
            if reply is None:
                if self._parser.has_chunk and math.isnan(self._first_s):
                    self._first_s = time.monotonic()
                return
            if self.asked is None:
                raise ReplyError("an answer came that nobody had asked for")
        except ReplyError as error:
            self._traffic.fail(error)
            return
        now_s = time.monotonic()
        asked, self.asked = self.asked, None
        first_s, self._first_s = self._first_s, NOT_TOLD
        if math.isnan(first_s):
            first_s = now_s
        traffic = self._traffic
        traffic.answered(asked, reply, first_s=first_s, now_s=now_s)
        self.due_s = now_s + traffic.plan.think_s
        if reply.head.keep_alive:
            traffic.idle(self)
            traffic.settle()
        elif self._transport is not None:
            self._transport.close()  # connection_lost goes on from there

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell, also of the request that was lost with it."""
        self._transport = None
        self._lost.set()
        self._traffic.left(self, self.give_up())

    def give_up(self) -> Asked | None:
        """Wait no more for an answer; gives what was asked."""
        asked, self.asked = self.asked, None
        return asked

    async def close(self) -> None:
        """Drop the connection and wait until it is gone."""
        if self._transport is not None:
            self._transport.abort()
            await self._lost.wait()
