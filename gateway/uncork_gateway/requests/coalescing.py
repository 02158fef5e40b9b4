"""Runs identical requests once: a request joins an identical one that is queued or running."""

from __future__ import annotations

import itertools
import math
import re
import time
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass

from msgspec.structs import astuple, replace

from uncork_dispatcher import ApiRules, AsyncDispatcher, RequestExpired, RequestResult, RequestShed, Waiter
from uncork_dispatcher.callers import notify
from uncork_dispatcher.requests.lazy_heap import LazyHeap
from uncork_gateway.codecs import Marshalled
from uncork_gateway.codecs.cost import NO_COST
from uncork_gateway.dialects.base import HandlerResult
from uncork_gateway.headers import CREDENTIALS, IDS, Header
from uncork_gateway.requests.parts import ApiSubmission, Submitted, cancel, for_same_client
from uncork_gateway.telemetry.metrics import ApiTally

# If the times of many clients pass one after the other, each costs no more than so many requests.
_MOST_BEGUN = 2
# Messages of a stream have one deadline, but for the time between them in which it is computed.
_SAME_S = 0.01

_IDS = re.compile(IDS.decode())

Begin = Callable[[ApiSubmission], Submitted]
"""Submits a request to the dispatcher."""


def credentials_of(headers: Sequence[Header]) -> tuple[Header, ...]:
    """Return the headers that identify a client. Identical requests have equal ones."""
    return tuple([(name.lower(), value) for name, value in headers if name.lower() in CREDENTIALS])


@dataclass(slots=True, eq=False)
class CoalescedRequest:
    """A request of an API that coalesces.

    Attributes:
        key: equal for identical requests.
        expires_at: when the client gives up.
        number: identifies the request in its computation.
        computation: where the request waits; None once it was notified, or has left.
        began: how often the request has joined or begun a computation.
    """

    begin: Begin
    waiter: Waiter[HandlerResult]
    asked: ApiSubmission
    key: Hashable
    arrival: float
    expires_at: float
    computation: Computation | None = None
    began: int = 0
    number: int = 0

    def withdraw(self) -> int | None:
        """Leave the computation: the client has left. Return the number of its batch if that ends, too."""
        return None if self.computation is None else self.computation.leave(self)


class Computation:
    """Identical requests, of which the first is submitted; waits for its result for all of them.

    Attributes:
        expires_at: when the next of its requests expires, or later; requests that expire earlier do not join.
    """

    def __init__(self, coalescing: Coalescing, first: CoalescedRequest, now: float) -> None:
        self._coalescing = coalescing
        self.first = first
        self._began = now
        self._requests: dict[int, CoalescedRequest] = {}
        self._numbers = itertools.count()
        self._expiries = LazyHeap(self._requests)
        self.expires_at = first.expires_at
        asked = for_same_client(first.asked, self, first.asked.payload)
        asked.client_timeout_s -= now - first.arrival
        asked.on_expiry = self._expired
        self._submitted: Submitted | None = first.begin(asked)

    def add(self, request: CoalescedRequest) -> None:
        span = request.asked.payload.span
        if span is not None and request is not self.first:
            span.set_attribute("uncork.coalesced", True)
        request.computation = self
        request.number = next(self._numbers)
        self._requests[request.number] = request
        if request.expires_at != math.inf:
            self._expiries.push(request.expires_at, request.number)
        self._coalescing.requests += 1
        self._coalescing.size_bytes += request.asked.size_bytes

    def leave(self, request: CoalescedRequest) -> int | None:
        """Remove a request; after the last, cancel the computation, and return the number of its batch."""
        self._remove(request)
        return None if self._requests else self._cancel()

    def _cancel(self) -> int | None:
        self._coalescing.close(self)
        submitted, self._submitted = self._submitted, None  # it refers to this computation
        return None if submitted is None else cancel(self._coalescing.dispatcher, submitted)

    def _expired(self, now: float) -> float:
        """End the requests whose time has passed while the computation runs; return when the next expires."""
        expired = []
        while (first := self._expiries.top()) is not None and first.expires_at <= now:
            expired.append(first)
            self._remove(first)
        self.expires_at = math.inf if first is None else first.expires_at
        number = None if self._requests else self._cancel()
        error = RequestExpired("the client's time passed while the request ran", batch=number)
        for request in expired:
            notify("a waiter", request.waiter.failed, error)
        return self.expires_at

    # The dispatcher's waiter

    def answered(self, answer: RequestResult[HandlerResult]) -> None:
        for request, tally in self._take():
            queued_s = max(0.0, answer.queued_s + self._began - request.arrival)
            own = RequestResult(answer.result, answer.batch, queued_s)
            notify("a waiter", request.waiter.answered, own)
            tally.coalesced += request is not self.first

    def failed(self, error: Exception) -> None:
        """Pass the error on. If only the first client's time has passed or is too short, run the others."""
        is_late = isinstance(error, RequestShed) and (
            error.reason == "client_deadline"
            or (error.reason in ("deadline", "no_worker") and self._is_hurried)
        )
        # The dispatcher's clock may be ahead of this one for an instant.
        now = max(self._coalescing.clock(), self.expires_at)
        for request, tally in self._take():
            if is_late and request.expires_at > now:
                self._begin_again(request)
                continue
            notify("a waiter", request.waiter.failed, error)
            tally.coalesced += request is not self.first

    @property
    def _is_hurried(self) -> bool:
        """True if a client, not the goal of the API, has set the deadline."""
        rules = self._coalescing.rules
        goal_s = rules.bulk_goal_s if self.first.asked.bulk and rules.bulk_goal_s else rules.goal_s
        return self.expires_at < self._began + goal_s

    def _begin_again(self, request: CoalescedRequest) -> None:
        try:
            self._coalescing.enter(request)
        except RequestShed as error:
            notify("a waiter", request.waiter.failed, error)

    def _take(self) -> Iterator[tuple[CoalescedRequest, ApiTally]]:
        """End the computation; yield its requests, except those that leave meanwhile, and their counts."""
        self._coalescing.close(self)
        self._submitted = None
        tally = self._coalescing.tally_of(self.first.asked.bulk)
        for request in list(self._requests.values()):
            if request.computation is self:
                self._remove(request)
                yield request, tally

    def _remove(self, request: CoalescedRequest) -> None:
        request.computation = None
        del self._requests[request.number]
        self._coalescing.requests -= 1
        self._coalescing.size_bytes -= request.asked.size_bytes


class Coalescing:
    """The computations of one API that requests can join.

    As many requests may wait here as in the queue, with as many bytes; further ones join none.

    Args:
        tally_of: returns the counts of a class, the second if True.
        clock: returns monotonic seconds, as for the dispatcher.

    Attributes:
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

    def submit(self, begin: Begin, asked: ApiSubmission, credentials: Hashable) -> CoalescedRequest:
        """Let a request join an identical one, or submit it with ``begin``; raises as :meth:`enter`."""
        assert asked.waiter is not None
        key, now = _key(asked, credentials), self.clock()
        request = CoalescedRequest(
            begin, asked.waiter, asked, key, now, expires_at=now + asked.client_timeout_s
        )
        self.enter(request)
        return request

    def enter(self, request: CoalescedRequest) -> None:
        """Add a request to a computation, or begin one; raise RequestShed if it was shed at once."""
        computation = self._open.get(request.key)
        request.began += 1
        if computation is None or not self._may_join(request, computation):
            computation = Computation(self, request, self.clock())
            self._open[request.key] = computation
        computation.add(request)

    def start_over(self, rules: ApiRules) -> None:
        """Adopt the limits of reloaded code; new requests do not join computations of older code."""
        self.rules = rules
        self._open.clear()

    def close(self, computation: Computation) -> None:
        """Let no more requests join a computation."""
        if self._open.get(computation.first.key) is computation:
            del self._open[computation.first.key]

    def _may_join(self, request: CoalescedRequest, computation: Computation) -> bool:
        size_bytes = self.size_bytes + request.asked.size_bytes
        return (
            request.expires_at >= computation.expires_at - _SAME_S
            and self.requests < self.rules.max_queue_requests
            and size_bytes <= self.rules.max_queue_bytes
            and request.began <= _MOST_BEGUN
        )


def _key(asked: ApiSubmission, credentials: Hashable) -> Hashable:
    """Return a value that is equal for requests with the same result.

    Everything is compared that the worker gets, except ids, so no choice of values makes different requests
    equal. An error message may name a place in the client's body, so its layout is compared too.
    """
    payload = asked.payload
    locate, note, meta = payload.locate, payload.note, payload.meta
    if meta is not None:
        headers = tuple([header for header in meta.headers if not _IDS.fullmatch(header[0])])
        meta = replace(meta, headers=headers)
    none = {"note": None, "span": None, "locate": None, "request_id": "", "rest_bytes": 0}
    return (
        astuple(replace(payload, cost=NO_COST, meta=meta, **none)),
        tuple(payload.cost.of_rows),
        getattr(locate, "func", locate),
        getattr(locate, "args", ()),
        tuple([(tensor.name, tensor.form) for tensor in getattr(note, "inputs", ())]),
        getattr(note, "typed", False),
        credentials,
        asked.flow,
        asked.bulk,
    )
