"""Callers of the asyncio shell that submit requests and take answers several at a time."""

from __future__ import annotations

import asyncio

import pytest

from tests.dispatcher.shell import Workers, fixed
from uncork_dispatcher.asyncio_dispatcher import AsyncDispatcher
from uncork_dispatcher.jobs import RequestResult, Submission
from uncork_dispatcher.tasks import TaskRunner

pytestmark = pytest.mark.virtual_time


class Callers:
    """Submit payloads when the shell asks for them, and record what it does."""

    def __init__(self) -> None:
        self.waiting: list[str] = []
        self.log: list[str] = []
        self.shell: AsyncDispatcher[str, str] = AsyncDispatcher(
            TaskRunner(Workers()), bursts=self, clock=asyncio.get_running_loop().time
        )
        self.shell.set_api(fixed(0))
        self.shell.worker_ready(0)

    def submit(self, payload: str) -> None:
        self.shell.submit(Submission(self, "a", payload))

    def answered(self, answer: RequestResult[str]) -> None:
        """Record the result and the number of its batch."""
        self.log.append(f"{answer.result}{answer.batch.number}")

    def failed(self, error: Exception) -> None:
        raise error

    def submit_waiting(self) -> None:
        waiting, self.waiting = self.waiting, []
        for payload in waiting:
            self.submit(payload)

    def __enter__(self) -> None:
        self.log.append("(")

    def __exit__(self, *error: object) -> None:
        self.log.append(")")


async def test_waiting_requests_join_the_batch_that_is_about_to_start() -> None:
    callers = Callers()
    await asyncio.sleep(0)
    callers.submit("x")
    callers.waiting = ["y", "z"]
    await asyncio.sleep(1)
    assert callers.log == ["(", "X1", "Y1", "Z1", ")"]


async def test_waiting_requests_join_the_batch_that_follows_one_that_ends() -> None:
    callers = Callers()
    await asyncio.sleep(0)
    callers.submit("x")
    await asyncio.sleep(0.01)
    callers.submit("y")
    await asyncio.sleep(0.01)
    callers.waiting = ["z"]
    await asyncio.sleep(1)
    assert callers.log == ["(", "X1", ")", "(", "Y2", "Z2", ")"]
