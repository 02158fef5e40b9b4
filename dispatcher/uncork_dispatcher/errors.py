"""The errors of requests that get no result from a worker.

DispatchError
├── RequestShed        shed: its deadline cannot be met, a limit is reached, no worker, draining
├── RequestExpired     its client's time passed while it ran
├── BatchTimedOut      its batch ran past the API's timeout
├── WorkerLost         its worker died, and it may not run again
└── WrongResultCount   the batch function returned another number of results than it got items
"""

from __future__ import annotations

from uncork_dispatcher.actions import SHORTEST_RETRY_S, ShedReason
from uncork_dispatcher.wording import plural


class DispatchError(Exception):
    """A request got no result from a worker; ``batch`` is the number of the batch that ran it, if known."""

    def __init__(self, message: str = "", *, batch: int | None = None) -> None:
        super().__init__(message)
        self.batch = batch


class RequestShed(DispatchError):
    """The request was shed; the client should retry after ``retry_after_s`` seconds."""

    def __init__(self, reason: ShedReason, retry_after_s: float = SHORTEST_RETRY_S) -> None:
        super().__init__(f"request shed: {reason}; retry after {retry_after_s:.1f} s")
        self.reason = reason
        self.retry_after_s = retry_after_s


class RequestExpired(DispatchError):
    """The client's time passed while the request ran."""


class BatchTimedOut(DispatchError):
    """The batch ran past its timeout and was given up."""


class WorkerLost(DispatchError):
    """The worker died while it ran the batch. Runners may raise this error too."""


class WrongResultCount(DispatchError):
    """A batch function returned ``got`` results for ``expected`` items."""

    def __init__(self, expected: int, got: int) -> None:
        super().__init__(
            f"the batch function returned {plural(got, 'result')} for {plural(expected, 'item')}"
        )
