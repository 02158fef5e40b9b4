"""All requests inside the core: their states, and the totals of each API."""

from __future__ import annotations

import math

import pytest

from tests.dispatcher.driver import entry
from uncork_dispatcher.api import Api
from uncork_dispatcher.requests.fair_queue import FairQueue
from uncork_dispatcher.requests.fill import Fill
from uncork_dispatcher.requests.queue import Entry
from uncork_dispatcher.requests.queue_order import Backlog
from uncork_dispatcher.requests.states import RequestState
from uncork_dispatcher.rules import ApiRules
from uncork_dispatcher.scheduling.queues import RequestQueues


def queued() -> tuple[RequestQueues, Api, Entry]:
    api = Api(ApiRules(name="a"))
    queues = RequestQueues({"a": api})
    request = entry(1, rows=3, size_bytes=7, queue=queues.queue("a", None))
    queues.add(request)
    return queues, api, request


def test_a_request_runs_three_times_at_most() -> None:
    """As at first, in its old place; alone, behind all others; then it is lost."""
    queues, api, request = queued()
    first = request.queue
    queues.take(first, Fill(size=3, size_bytes=7))
    assert queues.retry(1, [request], idempotent=True, now=4.0) == []
    assert (request.state, request.arrival, api.backlog) == (RequestState.REQUEUED, 0.0, Backlog(1, 3.0, 7))
    second = request.queue
    assert second is not first
    queues.take(second, Fill(size=3, size_bytes=7))
    states = [request.state]

    assert queues.retry(2, [request], idempotent=True, now=5.0) == []
    assert (request.state, request.arrival, api.backlog.requests) == (RequestState.QUARANTINED, 5.0, 1)
    assert request.queue is not second
    queues.take(request.queue, Fill(size=0, size_bytes=0))
    states.append(request.state)

    assert queues.retry(3, [request], idempotent=True, now=6.0) == [request]
    assert [*states, request.state] == [RequestState.REPEATING, RequestState.RETRYING, RequestState.LOST]
    assert not queues.unanswered


@pytest.mark.parametrize("runs", [1, 2])
def test_a_request_that_may_not_run_again_is_lost(runs: int) -> None:
    """Also if that was allowed at its first loss."""
    queues, api, request = queued()
    for batch in range(1, runs):
        queues.take(request.queue, Fill(size=3, size_bytes=7))
        queues.retry(batch, [request], idempotent=True, now=4.0)
    queues.take(request.queue, Fill(size=3, size_bytes=7))

    assert queues.retry(runs, [request], idempotent=False, now=5.0) == [request]
    assert (request.state, api.backlog) == (RequestState.LOST, Backlog())
    assert not queues


def test_each_lost_batch_has_a_queue_in_the_order_of_arrival() -> None:
    queues, _, third = queued()
    third.arrival = 3.0
    others = [entry(n, arrival=at, queue=queues.queue("a", None)) for n, at in ((2, 2.0), (3, 1.0), (4, 0.0))]
    for other in others:
        queues.add(other)
    queues.take(third.queue, Fill(size=100, size_bytes=100))
    queues.retry(1, [third, *others[:2]], idempotent=True, now=5.0)
    queues.retry(2, others[2:], idempotent=True, now=5.0)

    assert third.queue is others[0].queue is others[1].queue
    assert third.queue.oldest is others[1]
    assert others[2].queue is not third.queue
    assert [len(queues), len(third.queue), len(others[2].queue)] == [2, 3, 1]


def test_only_the_queues_of_one_api_are_regrouped() -> None:
    """Each of its batch keys; the totals stay, and so do requests that run again."""
    fair, other = Api(ApiRules(name="a", fair=True)), Api(ApiRules(name="b"))
    queues = RequestQueues({"a": fair, "b": other})
    places = [("a", "x"), ("a", "y"), ("b", None), ("a", "x")]
    requests: list[Entry] = []
    for number, place in enumerate(places, 1):
        requests.append(entry(number, queue=queues.queue(*place)))
        queues.add(requests[-1])
    queues.take(requests[3].queue, Fill(size=1, size_bytes=0))
    [again] = [request for request in requests if request.state is RequestState.RUNNING]
    queues.retry(1, [again], idempotent=True, now=1.0)
    before = [request.queue for request in requests]
    fair.change(ApiRules(name="a"))

    queues.regroup("a")

    moved = [request.queue is not old for request, old in zip(requests, before, strict=True)]
    assert moved == [request is not again and request.queue.api == "a" for request in requests]
    assert [isinstance(request.queue, FairQueue) for request in requests] == [False] * 4
    assert (fair.backlog.requests, other.backlog.requests) == (3, 1)
    for request in requests:
        queues.cancel(request.request)
    assert not queues


def test_a_request_that_gets_more_time_expires_after_others() -> None:
    """Also if it was the only one with a time."""
    queues, _, _ = queued()
    runs, other = [entry(number, queue=queues.queue("a", key)) for number, key in enumerate("xy", 2)]
    runs.expires_at, other.expires_at = 10.0, 16.0
    queues.add(runs)
    queues.take(runs.queue, Fill(size=1))
    queues.expired(runs)
    queues.extend(runs.request, 100.0)
    queues.add(other)
    assert queues.next_to_expire is other


def test_the_next_to_expire_is_the_client_that_gives_up_first() -> None:
    """In any queue, whatever its deadline, also if it runs; clients that set no time do not count."""
    queues, _, patient = queued()
    others = [entry(number, queue=queues.queue("a", key)) for number, key in enumerate("xyz", 2)]
    for other, expires_at in zip(others, (5.0, 4.0, 3.0), strict=True):
        other.expires_at = expires_at
        queues.add(other)
    second, first, runs = others
    seen = [queues.next_to_expire]
    queues.take(runs.queue, Fill(size=1))
    seen.append(queues.next_to_expire)
    queues.expired(runs)
    seen.append(queues.next_to_expire)
    queues.extend(runs.request, 3.5)
    seen.append(queues.next_to_expire)
    queues.retry(1, [runs], idempotent=True, now=1.0)
    seen.append(queues.next_to_expire)
    queues.shed(runs)
    queues.extend(runs.request, 3.5)
    for leaver in (first, second):
        seen.append(queues.next_to_expire)
        queues.cancel(leaver.request)
    queues.take(patient.queue, Fill(size=3))

    assert seen == [runs, runs, first, runs, runs, first, second]
    assert queues.next_to_expire is None
    assert patient.expires_at == math.inf
