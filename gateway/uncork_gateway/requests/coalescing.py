"""Runs identical requests once: a request joins an identical one that is queued or running."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Iterator, Sequence

from msgspec.structs import replace

from uncork_dispatcher import ApiRules, AsyncDispatcher, RequestResult, RequestShed, Waiter
from uncork_dispatcher.callers import notify
from uncork_gateway.codecs import Marshalled
from uncork_gateway.codecs.cost import NO_COST
from uncork_gateway.dialects.base import HandlerResult
from uncork_gateway.headers import CREDENTIALS, Header
from uncork_gateway.requests.group_parts import Client, Submitted, cancel
from uncork_gateway.telemetry.metrics import ApiTally

Begin = Callable[[Waiter[HandlerResult], Marshalled, Client], Submitted]
"""Submits a request to the dispatcher."""


def credentials_of(headers: Sequence[Header]) -> tuple[Header, ...]:
    """Return the headers that identify a client. Only requests with the same ones are run once."""
    return tuple([(name.lower(), value) for name, value in headers if name.lower() in CREDENTIALS])


class CoalescedRequest:
    """A request of an API that coalesces.

    Attributes:
        began_again: True after a computation has ended without a result for it.
    """

    __slots__ = (
        *("arrival", "began_again", "begin", "client", "computation"),
        *("expires_at", "key", "payload", "waiter"),
    )

    def __init__(
        self,
        begin: Begin,
        waiter: Waiter[HandlerResult],
        payload: Marshalled,
        credentials: Hashable,
        client: Client,
        now: float,
    ) -> None:
        self.begin = begin
        self.waiter = waiter
        self.payload = payload
        self.client = client
        self.arrival = now
        self.expires_at = now + client["client_timeout_s"]
        self.key = _key(payload, credentials, client)
        self.computation: Computation | None = None
        self.began_again = False

    def withdraw(self) -> None:
        """Leave the computation: the client has left."""
        if self.computation is not None:
            self.computation.leave(self)


class Computation:
    """Identical requests, of which the first is submitted; waits for its result for all of them."""

    def __init__(self, coalescing: Coalescing, first: CoalescedRequest, now: float) -> None:
        self._coalescing = coalescing
        self._first = first
        self._began = now
        self._requests: dict[CoalescedRequest, None] = {}
        client = first.client.copy()
        client["client_timeout_s"] -= now - first.arrival
        self._submitted = first.begin(self, first.payload, client)
        self._add(first)

    @property
    def key(self) -> Hashable:
        return self._first.key

    def join(self, request: CoalescedRequest) -> bool:
        """Add a request; return False if it must run by itself, because it cannot wait for this result."""
        if request.expires_at < self._first.expires_at or not self._coalescing.has_room(request):
            return False
        if request.payload.span is not None:
            request.payload.span.set_attribute("uncork.coalesced", True)
        self._add(request)
        return True

    def leave(self, request: CoalescedRequest) -> None:
        """Remove a request; after the last, cancel the computation."""
        self._remove(request)
        if not self._requests:
            self._coalescing.close(self)
            cancel(self._coalescing.dispatcher, self._submitted)

    # The dispatcher's waiter

    def answered(self, answer: RequestResult[HandlerResult]) -> None:
        for request in self._take():
            queued_s = max(0.0, answer.queued_s + self._began - request.arrival)
            own = RequestResult(answer.result, answer.batch, queued_s)
            notify("a waiter", request.waiter.answered, own)
            self._count(request)

    def failed(self, error: Exception) -> None:
        """Pass the error on. If only the first client's time has passed, the others run without it."""
        now = self._coalescing.clock()
        reason = error.reason if isinstance(error, RequestShed) else None
        for request in self._take():
            if reason == "client_deadline" and request.expires_at > now:
                self._coalescing.enter_again(request)
                continue
            notify("a waiter", request.waiter.failed, error)
            tally = self._count(request)
            if reason is not None and request is not self._first:
                tally.sheds[reason] += 1

    def _take(self) -> Iterator[CoalescedRequest]:
        """End the computation, and yield its requests, except those that leave meanwhile."""
        self._coalescing.close(self)
        for request in list(self._requests):
            if request in self._requests:
                self._remove(request)
                yield request

    def _count(self, request: CoalescedRequest) -> ApiTally:
        tally = self._coalescing.tally_of(self._first.client["bulk"])
        tally.coalesced += request is not self._first
        return tally

    def _add(self, request: CoalescedRequest) -> None:
        request.computation = self
        self._requests[request] = None
        self._coalescing.requests += 1
        self._coalescing.size_bytes += request.payload.size_bytes

    def _remove(self, request: CoalescedRequest) -> None:
        request.computation = None
        del self._requests[request]
        self._coalescing.requests -= 1
        self._coalescing.size_bytes -= request.payload.size_bytes


class Coalescing:
    """The computations of one API that requests can join.

    Clients may send as many requests here as in the queue, of as many bytes; further ones join none.

    Args:
        tally_of: returns the counts of a class, the second if True.
        clock: returns monotonic seconds, as for the dispatcher.

    Attributes:
        rules: the limits of the API's queue.
        requests, size_bytes: the number of requests that wait for a result, and the size of their bodies.
    """

    def __init__(
        self,
        dispatcher: AsyncDispatcher[Marshalled, HandlerResult],
        rules: ApiRules,
        tally_of: Callable[[bool], ApiTally],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.dispatcher = dispatcher
        self.rules = rules
        self.tally_of = tally_of
        self.clock = clock
        self.requests = 0
        self.size_bytes = 0
        self._open: dict[Hashable, Computation] = {}

    def submit(
        self,
        begin: Begin,
        waiter: Waiter[HandlerResult],
        payload: Marshalled,
        credentials: Hashable,
        client: Client,
    ) -> CoalescedRequest:
        """Let a request join an identical one, or submit it with ``begin``.

        Raises:
            RequestShed: if the request was shed at once.
        """
        request = CoalescedRequest(begin, waiter, payload, credentials, client, self.clock())
        self._enter(request)
        return request

    def enter_again(self, request: CoalescedRequest) -> None:
        """Submit a request whose computation has ended without a result for it.

        The second time it runs by itself, so that clients whose time passes one after the other cost no more
        than their number.
        """
        is_second, request.began_again = request.began_again, True
        try:
            if is_second:
                Computation(self, request, self.clock())
            else:
                self._enter(request)
        except RequestShed as error:
            notify("a waiter", request.waiter.failed, error)

    def has_room(self, request: CoalescedRequest) -> bool:
        """Return True if a request may join another."""
        size_bytes = self.size_bytes + request.payload.size_bytes
        return self.requests < self.rules.max_queue_requests and size_bytes <= self.rules.max_queue_bytes

    def close(self, computation: Computation) -> None:
        """Let no more requests join a computation."""
        if self._open.get(computation.key) is computation:
            del self._open[computation.key]

    def _enter(self, request: CoalescedRequest) -> None:
        known = self._open.get(request.key)
        if known is None or not known.join(request):
            self._open[request.key] = Computation(self, request, self.clock())


def _key(payload: Marshalled, credentials: Hashable, client: Client) -> Hashable:
    """Return a value that is equal for requests with the same result.

    Everything is compared that the worker gets, so no choice of values makes different requests equal. An
    error message may name a place in the client's body, so its layout is compared too.
    """
    locate = payload.locate
    return (
        replace(payload, cost=NO_COST, note=None, span=None, locate=None),
        tuple(payload.cost.of_rows),
        getattr(locate, "func", locate),
        getattr(locate, "args", ()),
        credentials,
        client["flow"],
        client["bulk"],
    )
