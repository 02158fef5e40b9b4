"""All requests inside the core: their states, and the totals of each API."""

from __future__ import annotations

import pytest

from tests.dispatcher.driver import entry
from uncork_dispatcher.api import Api
from uncork_dispatcher.requests.queue import Entry
from uncork_dispatcher.requests.queues import Backlog, RequestQueues
from uncork_dispatcher.requests.states import RequestState
from uncork_dispatcher.rules import ApiRules


def queued() -> tuple[RequestQueues, Api, Entry]:
    """Queues with one request of one API."""
    api = Api(ApiRules(name="a"))
    queues = RequestQueues({"a": api})
    request = entry(1, rows=3, size_bytes=7, queue=queues.queue("a", None))
    queues.add(request)
    return queues, api, request


def test_a_request_is_queued_then_runs_then_ends() -> None:
    queues, api, request = queued()
    assert (request.state, api.backlog) == (RequestState.QUEUED, Backlog(1, 3.0, 7))

    assert queues.take(request.queue, rows=3, size_bytes=7) == [request]
    assert (request.state, api.backlog) == (RequestState.RUNNING, Backlog())

    queues.end([request], RequestState.ANSWERED)
    assert request.state is RequestState.ANSWERED
    assert queues.all_ended


def test_a_request_is_quarantined_then_retried() -> None:
    queues, api, request = queued()
    first = request.queue
    queues.take(first, rows=3, size_bytes=7)
    queues.quarantine(request, now=5.0)
    assert (request.state, request.arrival, api.backlog.requests) == (RequestState.QUARANTINED, 5.0, 1)
    assert request.queue is not first

    queues.take(request.queue, rows=0, size_bytes=0)
    assert request.state is RequestState.RETRYING


@pytest.mark.parametrize("runs", [False, True])
def test_a_cancelled_request_stays_cancelled(runs: bool) -> None:
    queues, api, request = queued()
    if runs:
        queues.take(request.queue, rows=3, size_bytes=7)
    queues.cancel(1)
    queues.end([request], RequestState.ANSWERED)

    assert (request.state, api.backlog.requests) == (RequestState.CANCELLED, 0)
    assert queues.all_ended


def test_a_shed_request_is_not_queued() -> None:
    queues, _, request = queued()
    queues.shed(request)

    assert request.state is RequestState.SHED
    assert not queues
    assert queues.all_ended
