"""The two ways to send: a closed loop of clients, and an open loop on a schedule."""

import time
from collections import deque
from collections.abc import Sequence
from functools import partial

from uncork_loadtests.generator.connections import Connection, Traffic
from uncork_loadtests.generator.samples import LOST, NOT_TOLD
from uncork_loadtests.traffic.plan import Plan

_UNLIMITED = 1 << 62


class ClosedLoop(Traffic):
    """Clients that each send their next request when they have their answer and have thought.

    Latency counts from when a client wants to ask. A closed loop measures throughput; it hides queueing
    delay, because a slow server is asked less often.
    """

    def __init__(self, plan: Plan, *, share: int = 0) -> None:
        super().__init__(plan, share=share)
        self._clients = share_of(plan.clients or 0, plan, share)
        self._left = _UNLIMITED if plan.limit is None else share_of(plan.limit, plan, share)

    async def reach(self) -> None:
        """Connect all clients; ConnectionError if one cannot."""
        await self.connect(self._clients)

    def begin(self, start_s: float) -> None:
        """Let every client send its first request when the warm-up begins."""
        self.start_s = start_s
        for connection in list(self._connections):
            connection.due_s = start_s - self.plan.warmup_s
            self.idle(connection)

    def idle(self, connection: Connection) -> None:
        """Send the client's next request, now or when it has thought enough."""
        now_s = time.monotonic()
        if self.stopping or not connection.is_idle:
            return  # over, or its connection is being replaced, or there were two reasons to come here
        if connection.due_s > now_s:
            self.timer.call_at(connection.due_s, partial(self.idle, connection))
            return
        self._left -= 1
        self.stopping = self._left <= 0
        self.outstanding += 1
        due_s = connection.due_s if self.plan.think_s else now_s
        self.send(connection, scheduled_s=due_s, fired_s=now_s, now_s=now_s)

    def gone(self, connection: Connection) -> None:
        """Give the client another connection."""
        if not self.stopping:
            self.open(connection)

    def refused(self, error: OSError) -> None:
        """End the run: a client without a server has nothing to wait for."""
        if not self.stopping:
            self.fail(error)

    def finish(self) -> None:
        """Let no client ask again."""
        self.stopping = True

    def waiting(self) -> Sequence[tuple[float, float]]:
        """None: every client has its connection."""
        return ()


class OpenLoop(Traffic):
    """Requests that go out at their times, whatever becomes of earlier ones.

    The schedule is fixed before the start. Each request takes a connection that is free, else a new one up
    to the limit, else it waits for one; its latency counts from its time in the schedule.
    """

    def __init__(self, plan: Plan, *, share: int = 0) -> None:
        super().__init__(plan, share=share)
        self._schedule = plan.schedule()[share :: plan.processes]
        self._next = 0
        self._finishing = False
        self._most = share_of(plan.max_connections, plan, share)
        self._free: list[Connection] = []
        self._waiting: deque[tuple[float, float]] = deque()

    async def reach(self) -> None:
        """See whether the server is there; ConnectionError if not."""
        await self.connect(1)

    def begin(self, start_s: float) -> None:
        """Set out on the schedule."""
        self.start_s = start_s
        self._free.extend(self._connections)
        self._arm()

    def _arm(self) -> None:
        if self._next < len(self._schedule):
            self.timer.call_at(self.start_s + self._schedule[self._next], self._fire)

    def _fire(self) -> None:
        if self.halted:
            return
        now_s, scheduled_s = time.monotonic(), self.start_s + self._schedule[self._next]
        self._next += 1
        self.outstanding += 1
        if self._free:
            # The one used last: no more stay in use than are needed.
            self.send(self._free.pop(), scheduled_s=scheduled_s, fired_s=now_s, now_s=now_s)
        else:
            self._waiting.append((scheduled_s, now_s))
            self._open_if_allowed()
        if self._finishing:
            self.finish()
        self._arm()

    def _open_if_allowed(self) -> None:
        if len(self._waiting) > self.coming and self.connections < self._most:
            self.open(Connection(self))

    def idle(self, connection: Connection) -> None:
        """Send what has waited longest, or keep the connection for what comes."""
        if self._waiting:
            scheduled_s, fired_s = self._waiting.popleft()
            self.send(connection, scheduled_s=scheduled_s, fired_s=fired_s, now_s=time.monotonic())
        else:
            self._free.append(connection)

    def gone(self, connection: Connection) -> None:
        """Open another one if requests wait."""
        if connection in self._free:
            self._free.remove(connection)
        self._open_if_allowed()

    def refused(self, error: OSError) -> None:
        """Count the request that the connection was for as lost."""
        if self._waiting:
            scheduled_s, fired_s = self._waiting.popleft()
            self.unanswered(scheduled_s, fired_s, NOT_TOLD, status=LOST)
            self.settle()
        self._open_if_allowed()

    def finish(self) -> None:
        """Send what is late yet, no more than is on the schedule."""
        self._finishing = True
        self.stopping = self._next == len(self._schedule)

    def waiting(self) -> Sequence[tuple[float, float]]:
        """Those for which there was no connection, and those that the generator did not get to."""
        now_s = time.monotonic()
        late = ((self.start_s + due_s, now_s) for due_s in self._schedule[self._next :])
        return [*self._waiting, *late]


def share_of(count: int, plan: Plan, share: int) -> int:
    """How many of `count` fall to process number `share`."""
    return count // plan.processes + (share < count % plan.processes)


def make_traffic(plan: Plan, *, share: int = 0) -> ClosedLoop | OpenLoop:
    """The share number `share` of what a plan sends, on the running event loop."""
    return (OpenLoop if plan.clients is None else ClosedLoop)(plan, share=share)
