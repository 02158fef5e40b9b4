"""Errors that clients receive."""

import json
from typing import get_args

import pytest

from uncork_dispatcher import (
    BatchTimedOut,
    DispatchError,
    RequestShed,
    ShedReason,
    WorkerLost,
    WrongResultCount,
)
from uncork_gateway.errors import (
    BadGateway,
    ClientTimedOut,
    GatewayError,
    HandlerFailed,
    RefusalReason,
    TimedOut,
    Unavailable,
    from_dispatcher,
    problem,
)


@pytest.mark.parametrize(
    ("seconds", "header"), [(0.0, b"0"), (0.001, b"1"), (1.0, b"1"), (1.01, b"2"), (59.5, b"60")]
)
def test_retry_after_is_rounded_up(seconds: float, header: bytes) -> None:
    """The header has whole seconds; a client that returns too early would be refused again."""
    full = Unavailable("full", reason="queue_full", retry_after_s=seconds)
    assert full.headers() == [(b"retry-after", header)]


@pytest.mark.parametrize(
    ("reason", "message"),
    [
        (
            "deadline",
            "overloaded: this request cannot complete within the latency goal or the client's timeout",
        ),
        ("queue_full", "overloaded: the queue of this API is full"),
        ("no_worker", "no worker is ready"),
        ("draining", "the server is shutting down"),
    ],
)
def test_a_request_that_was_shed_may_come_again(reason: ShedReason, message: str) -> None:
    """503 with the dispatcher's time; the message says why."""
    error = from_dispatcher(RequestShed(reason, 2.5), executor="worker")

    assert type(error) is Unavailable
    assert (str(error), error.reason, error.retry_after_s) == (message, reason, 2.5)


@pytest.mark.parametrize(
    ("error", "kind", "message"),
    [
        (
            RequestShed("client_deadline", 1),
            ClientTimedOut,
            "the timeout in X-Request-Timeout-Ms expired before the request was executed",
        ),
        (BatchTimedOut("x"), TimedOut, "the batch exceeded the timeout of this API"),
        (WorkerLost("worker 5 at /secret died"), BadGateway, "the worker died while running this request"),
        (WrongResultCount(2, 3), HandlerFailed, "the batch function returned 3 results for 2 items"),
        (DispatchError("something else"), HandlerFailed, "something else"),
    ],
)
def test_every_end_in_the_dispatcher_has_its_error(
    error: DispatchError, kind: type[GatewayError], message: str
) -> None:
    told = from_dispatcher(error, executor="worker")

    assert type(told) is kind
    assert str(told) == message


@pytest.mark.parametrize(
    ("status", "title"),
    [
        (400, "Bad Request"),
        (405, "Method Not Allowed"),
        (413, "Content Too Large"),
        (414, "URI Too Long"),
        (416, "Range Not Satisfiable"),
        (422, "Unprocessable Content"),
        (503, "Service Unavailable"),
        (599, "Error"),
    ],
)
def test_a_problem_is_an_rfc_9457_document(status: int, title: str) -> None:
    """Type, title, status and detail; the title is the phrase of RFC 9110 in every version of Python."""
    document = json.loads(problem(status, 'what "was" wrong: \n é'))

    assert document == {
        "type": "about:blank",
        "title": title,
        "status": status,
        "detail": 'what "was" wrong: \n é',
    }


@pytest.mark.parametrize("reason", get_args(RefusalReason))
def test_a_refusal_has_a_reason_for_programs(reason: RefusalReason) -> None:
    """The detail is for people, and its words may change."""
    document = json.loads(problem(503, "full", reason))

    assert document["reason"] == reason
    assert document.keys() == {"type", "title", "status", "detail", "reason"}
