"""Requests to the dispatcher that together are the request of one client."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Generic, NamedTuple, TypeVar

from uncork_dispatcher import AsyncDispatcher, RequestResult, Submission, Waiter

P = TypeVar("P")
R = TypeVar("R")


class Parts(ABC, Generic[P, R]):
    """The parts of a request, and the replies to them.

    Args:
        caller: receives the result with the last reply, or the failure of a part.
        count: the number of parts.
    """

    def __init__(self, caller: Waiter[R], dispatcher: AsyncDispatcher[P, R], count: int) -> None:
        self._caller = caller
        self._dispatcher = dispatcher
        self._count = count
        self._submitted: list[Submission[P, R]] = []
        self._replies: dict[int, Any] = {}

    def withdraw(self) -> None:
        """Cancel the parts that have no result yet."""
        for submission in self._submitted:
            self._dispatcher.cancel(submission)

    @abstractmethod
    def _reply_of(self, answer: RequestResult[R]) -> Any:
        """Return the reply in a part's result; None if the result ends the whole request."""

    @abstractmethod
    def _join(self, replies: Sequence[Any], answer: RequestResult[R]) -> None:
        """Give the caller the joined replies; ``answer`` has the last of them."""

    def _submit(self, submission: Submission[P, R]) -> None:
        self._dispatcher.submit(submission)
        self._submitted.append(submission)

    def part_answered(self, at: int, answer: RequestResult[R]) -> None:
        try:
            reply = self._reply_of(answer)
            if reply is None:
                return
            self._replies[at] = reply
            if len(self._replies) == self._count:
                self._join([self._replies[at] for at in range(self._count)], answer)
        except Exception as error:
            self.failed(error)

    def failed(self, error: Exception) -> None:
        """End the whole request."""
        self.withdraw()
        self._caller.failed(error)


class PartWaiter(NamedTuple):
    """Passes the result of one part to its request."""

    parts: Parts[Any, Any]
    at: int

    def answered(self, answer: RequestResult[Any]) -> None:
        self.parts.part_answered(self.at, answer)

    def failed(self, error: Exception) -> None:
        self.parts.failed(error)
