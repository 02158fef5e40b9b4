"""The two ways to send requests: a closed loop of clients, and an open loop on a schedule."""

import time
from collections import deque
from collections.abc import Sequence
from functools import partial

from uncork_loadtests.generator.connections import Connection, Traffic
from uncork_loadtests.generator.samples import LOST
from uncork_loadtests.traffic.plan import Plan

_UNLIMITED = 1 << 62


class ClosedLoop(Traffic):
    """Clients that send their next request after their response and their think time.

    Latency counts from the end of the think time. A closed loop measures throughput; it hides queueing delay,
    because a slow server receives fewer requests.
    """

    def __init__(self, plan: Plan, *, share: int = 0) -> None:
        super().__init__(plan, share=share)
        self._clients = share_of(plan.clients or 0, plan, share)
        self._left = _UNLIMITED if plan.limit is None else share_of(plan.limit, plan, share)

    async def reach(self) -> None:
        """Connect all clients; raise ConnectionError if one fails."""
        await self.connect(self._clients)

    def begin(self, start_s: float) -> None:
        self.start_s = start_s
        for connection in list(self._connections):
            connection.due_s = start_s - self.plan.warmup_s
            self.on_idle(connection)

    def on_idle(self, connection: Connection) -> None:
        """Send the client's next request, now or after its think time."""
        now_s = time.monotonic()
        if self.stopping or not connection.is_idle:
            return  # the run is over, the connection is being replaced, or both answer and timer came here
        if connection.due_s > now_s:
            self.timer.call_at(connection.due_s, partial(self.on_idle, connection))
            return
        self._left -= 1
        self.stopping = self._left <= 0
        self.outstanding += 1
        due_s = connection.due_s if self.plan.think_s else now_s
        # A client that waited for its new connection does not mean a late generator.
        fired_s = due_s if connection.opened_s > due_s else now_s
        self.send(connection, scheduled_s=due_s, fired_s=fired_s, now_s=now_s)

    def on_closed(self, connection: Connection) -> None:
        if not self.stopping:
            self.open(connection)

    def on_connect_error(self, error: OSError) -> None:
        """End the run: without a server every client would wait forever."""
        if not self.stopping:
            self.fail(error)

    def finish(self) -> None:
        self.stopping = True

    def unsent(self) -> Sequence[tuple[float, float]]:
        """Return nothing: every client has its own connection."""
        return ()


class OpenLoop(Traffic):
    """Requests that go out on schedule, whatever happened to earlier ones.

    The schedule is fixed before the start. Each request takes a free connection, else a new one up to the
    limit, else waits for one; its latency counts from its scheduled time.
    """

    def __init__(self, plan: Plan, *, share: int = 0) -> None:
        super().__init__(plan, share=share)
        self._schedule = plan.schedule()[share :: plan.processes]
        self._next = 0
        self._finishing = False
        self._max_connections = share_of(plan.max_connections, plan, share)
        self._free: list[Connection] = []
        self._waiting: deque[tuple[float, float]] = deque()

    async def reach(self) -> None:
        """Check that the server accepts a connection; raise ConnectionError otherwise."""
        await self.connect(1)

    def begin(self, start_s: float) -> None:
        self.start_s = start_s
        self._free.extend(self._connections)
        self._schedule_next()

    def _schedule_next(self) -> None:
        if self._next < len(self._schedule):
            self.timer.call_at(self.start_s + self._schedule[self._next], self._fire)

    def _fire(self) -> None:
        if self.halted:
            return
        now_s, scheduled_s = time.monotonic(), self.start_s + self._schedule[self._next]
        self._next += 1
        self.outstanding += 1
        if self._free:
            # Last in, first out, so that no more connections stay in use than needed.
            self.send(self._free.pop(), scheduled_s=scheduled_s, fired_s=now_s, now_s=now_s)
        else:
            self._waiting.append((scheduled_s, now_s))
            self._open_if_allowed()
        if self._finishing:
            self.finish()
        self._schedule_next()

    def _open_if_allowed(self) -> None:
        opening, connected = len(self._opening), len(self._connections)
        if len(self._waiting) > opening and connected + opening < self._max_connections:
            self.open(Connection(self))

    def on_idle(self, connection: Connection) -> None:
        """Send the request that has waited longest, or keep the connection free."""
        if self._waiting:
            scheduled_s, fired_s = self._waiting.popleft()
            self.send(connection, scheduled_s=scheduled_s, fired_s=fired_s, now_s=time.monotonic())
        else:
            self._free.append(connection)

    def on_closed(self, connection: Connection) -> None:
        if connection in self._free:
            self._free.remove(connection)
        self._open_if_allowed()

    def on_connect_error(self, error: OSError) -> None:
        """Count the request that the connection was for as lost."""
        if self._waiting:
            scheduled_s, fired_s = self._waiting.popleft()
            self.never_sent(scheduled_s, fired_s, status=LOST)
            self.settle()
        self._open_if_allowed()

    def finish(self) -> None:
        """Send the overdue rest of the schedule, and nothing more."""
        self._finishing = True
        self.stopping = self._next == len(self._schedule)

    def unsent(self) -> Sequence[tuple[float, float]]:
        """Return the requests without a connection, and those that the generator is late with."""
        now_s = time.monotonic()
        due = (self.start_s + due_s for due_s in self._schedule[self._next :])
        return [*self._waiting, *((due_s, now_s) for due_s in due if due_s <= now_s)]


def share_of(count: int, plan: Plan, share: int) -> int:
    """Return the part of `count` that belongs to process number `share`."""
    return count // plan.processes + (share < count % plan.processes)
