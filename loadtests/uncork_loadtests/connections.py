"""The connections of a closed loop, and what they share.

`Run` starts, stops and counts; `Client` keeps one place in the loop. All of it runs on one event
loop, so nothing needs a lock.
"""

import asyncio
import time
from array import array
from collections import defaultdict
from typing import cast

from uncork_loadtests.http_reply import Reply, ReplyError, ReplyParser
from uncork_loadtests.load import Load

_CONNECT_SECONDS = 10.0
# Longer than any sensible latency goal: what has no answer by then is reported as unanswered.
_DRAIN_SECONDS = 15.0
_UNLIMITED = 1 << 62


class Tally:
    """What is counted apart for warm-up, measured time and end."""

    def __init__(self) -> None:
        self.statuses: defaultdict[int, int] = defaultdict(int)
        self.batch_sizes: defaultdict[int, int] = defaultdict(int)
        self.latencies = array("d")


class Run:
    """The state all connections share."""

    def __init__(self, load: Load) -> None:
        self.load = load
        self.requests = load.requests()
        self.expected = load.answers()
        self.limit = load.limit or _UNLIMITED
        self.started = False
        self.stopping = False
        self.sent = 0
        self.answers = 0
        self.errors = 0
        self.mismatches = 0
        self.first_mismatch = ""
        self._tally = Tally()
        self._clients = [Client(self) for _ in range(load.connections)]
        self._busy = load.connections
        self._over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._reconnecting: set[asyncio.Task[None]] = set()

    async def connect(self) -> None:
        """Open all connections; ConnectionError if one cannot be had."""
        outcomes = await asyncio.gather(
            *(self._connect(client) for client in self._clients), return_exceptions=True
        )
        for outcome in outcomes:
            if outcome is not None:
                raise outcome

    async def _connect(self, client: "Client") -> None:
        loop, (host, port) = asyncio.get_running_loop(), self.load.address
        try:
            async with asyncio.timeout(_CONNECT_SECONDS):
                await loop.create_connection(lambda: client, host, port)
        except OSError as error:  # TimeoutError is one
            reason = str(error) or f"no answer within {_CONNECT_SECONDS:g} s"
            raise ConnectionError(f"cannot connect to {host}:{port}: {reason}") from error

    def reconnect(self, client: "Client") -> None:
        """Give a client that lost its connection another one."""
        task = asyncio.get_running_loop().create_task(self._connect(client))
        self._reconnecting.add(task)
        task.add_done_callback(lambda task: self._reconnected(task, client=client))

    def _reconnected(self, task: asyncio.Task[None], *, client: "Client") -> None:
        self._reconnecting.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is None:
            return
        if self.stopping:
            client.park()
        else:
            self.fail(error)

    def start(self) -> None:
        """Let every client send its first request."""
        self.started = True
        for client in self._clients:
            client.proceed()

    def new_tally(self) -> Tally:
        """Count apart from now on; answer what the counts will be in."""
        self._tally = Tally()
        return self._tally

    async def wait(self, seconds: float) -> None:
        """Return after `seconds`, or as soon as nothing is left to do; raise what failed."""
        await asyncio.wait({self._over}, timeout=seconds)
        if self._over.done():
            self._over.result()

    async def drain(self) -> int:
        """Send nothing more, take the answers still to come, and count those that did not."""
        self.stopping = True
        for client in self._clients:
            client.park_if_idle()
        await self.wait(_DRAIN_SECONDS)
        return sum(client.in_flight for client in self._clients)

    async def close(self) -> None:
        """Close every connection, whatever is still outstanding."""
        self.stopping = True
        for task in self._reconnecting:
            task.cancel()
        await asyncio.gather(*self._reconnecting, return_exceptions=True)
        for client in self._clients:
            client.in_flight = False  # what is given up here was counted by drain
        await asyncio.gather(*(client.close() for client in self._clients))
        if self._over.done():
            self._over.exception()  # mark it as seen: another error may have been raised instead

    def record(self, reply: Reply, *, index: int, seconds: float) -> None:
        """Count an answer to body number `index` that took `seconds`, and compare it."""
        self.answers += 1
        tally, head = self._tally, reply.head
        tally.statuses[head.status] += 1
        if head.status != 200:
            return
        tally.latencies.append(seconds)
        if head.batch_size:
            tally.batch_sizes[head.batch_size] += 1
        if self.expected is not None and reply.body != self.expected[index]:
            self._mismatch(index, body=reply.body, expected=self.expected[index])

    def _mismatch(self, index: int, *, body: bytes, expected: bytes) -> None:
        self.mismatches += 1
        if not self.first_mismatch:
            sent, expected, body = self.load.bodies[index][:80], expected[:80], body[:80]
            self.first_mismatch = f"sent {sent!r}, expected {expected!r}, got {body!r}"

    def fail(self, error: BaseException) -> None:
        """End the run with `error`."""
        self.stopping = True
        if not self._over.done():
            self._over.set_exception(error)

    def parked(self) -> None:
        """Note that one more client is done; the run is over with the last."""
        self._busy -= 1
        if not self._busy and not self._over.done():
            self._over.set_result(None)


class Client(asyncio.Protocol):
    """One client: it keeps its place in the loop when its connection is replaced."""

    def __init__(self, run: Run) -> None:
        self.in_flight = False
        self._run = run
        self._transport: asyncio.Transport | None = None
        self._lost = asyncio.Event()
        self._parser = ReplyParser()
        self._parked = False
        self._index = 0
        self._sent_at = 0.0
        self._rest_until = 0.0
        self._rest: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Go on where the connection before left off."""
        self._transport = cast(asyncio.Transport, transport)
        self._lost.clear()
        self._parser = ReplyParser()
        if self._run.started:
            self.proceed()

    def proceed(self) -> None:
        """Send the next request, now or when the think time is over."""
        run, transport = self._run, self._transport
        if run.stopping:
            self.park()
        elif transport is None:
            return  # being reconnected, comes back here when that is done
        elif run.load.think and (rest := self._rest_until - time.perf_counter()) > 0:
            self._rest = asyncio.get_running_loop().call_later(rest, self.proceed)
        else:
            self._index = run.sent % len(run.requests)
            run.sent += 1
            if run.sent >= run.limit:
                run.stopping = True
            self.in_flight = True
            self._sent_at = time.perf_counter()
            transport.write(run.requests[self._index])

    def data_received(self, data: bytes) -> None:
        """Take a piece of the answer; with the last piece, ask again."""
        try:
            reply = self._parser.feed(data)
            if reply is None:
                return
            if not self.in_flight:
                raise ReplyError("an answer came that nobody had asked for")
        except ReplyError as error:
            self._run.fail(error)
            return
        now = time.perf_counter()
        self.in_flight = False
        self._run.record(reply, index=self._index, seconds=now - self._sent_at)
        self._rest_until = now + self._run.load.think
        if reply.head.keep_alive:
            self.proceed()
        elif self._transport is not None:
            self._transport.close()  # connection_lost goes on from there

    def connection_lost(self, exc: Exception | None) -> None:
        """Count what was lost with the connection and get another one."""
        self._transport = None
        self._lost.set()
        if self._rest is not None:
            self._rest.cancel()
        if self.in_flight:
            self.in_flight = False
            self._run.errors += 1
        if self._run.stopping:
            self.park()
        else:
            self._run.reconnect(self)

    def park_if_idle(self) -> None:
        """Stop now if no answer is outstanding; otherwise the answer will do it."""
        if not self.in_flight and self._transport is not None:
            self.park()

    def park(self) -> None:
        """Send nothing more."""
        if not self._parked:
            self._parked = True
            self._run.parked()

    async def close(self) -> None:
        """Drop the connection and wait until it is gone."""
        if self._transport is not None:
            self._transport.abort()
            await self._lost.wait()
