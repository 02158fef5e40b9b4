"""Exceptions that handlers raise."""

from __future__ import annotations

from uncork_gateway.pages.status.document import Failure
from uncork_gateway.pages.status.failures import Failures
from uncork_workers.wire.messages import ExceptionReport


class Told:
    """Failures with a clock that the test sets."""

    def __init__(self, *, show_messages: bool = True) -> None:
        self.now = 1000.0
        self.failures = Failures(show_messages=show_messages, clock=lambda: self.now)

    def raised(self, error: str = "KeyError", *, place: str = "a.py:1", requests: int = 1) -> None:
        """Fail a batch of the API ``a``, a second later."""
        self.failures.note(
            "a", [ExceptionReport(error, place, f"{error} of a client", f"id{self.now:g}", requests)]
        )
        self.now += 1


def test_the_last_is_told_with_how_often_and_since_when() -> None:
    """Exceptions are counted by class and place, whatever happens between them."""
    told = Told()
    told.raised(requests=3)
    told.raised("TypeError")
    told.raised(requests=4)

    assert told.failures.last("a") == Failure(
        error="KeyError",
        place="a.py:1",
        message="KeyError of a client",
        error_id="id1002",
        requests=7,
        first=1000.0,
        last=1002.0,
    )
    assert told.failures.last("b") is None


def test_the_message_is_told_to_operators_only() -> None:
    """Messages may quote requests; class and place do not."""
    told = Told(show_messages=False)
    told.raised()

    failure = told.failures.last("a")
    assert failure is not None
    assert (failure.error, failure.place, failure.message) == ("KeyError", "a.py:1", None)


def test_a_batch_that_was_saved_is_no_failure() -> None:
    told = Told()
    told.raised(requests=0)

    assert told.failures.last("a") is None


def test_few_kinds_are_kept() -> None:
    told = Told()
    for line in range(100):
        told.raised(place=f"a.py:{line}")
        told.raised(place="always.py:1")

    last = told.failures.last("a")
    assert last is not None
    assert (last.place, last.requests) == ("always.py:1", 100)
    told.raised(place="a.py:0")
    last = told.failures.last("a")
    assert last is not None
    assert last.requests == 1
