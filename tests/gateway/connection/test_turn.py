"""The work of a turn of the loop, and the connections that wait for the next."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.gateway.running import turns
from uncork_gateway.connection.turn import TURN_WORK, Turn


class Closing(asyncio.Transport):
    """A transport that notes that it is closed."""

    def __init__(self, done: list[str], name: str) -> None:
        super().__init__()
        self._done = done
        self._name = name

    def close(self) -> None:
        self._done.append(f"{self._name} closed")


class Worker:
    """A connection with some work left; ``done`` lists the names of all connections, in order."""

    def __init__(self, turn: Turn, work: int, done: list[str], name: str = "a") -> None:
        self.transport: Any = Closing(done, name)
        self.work = work
        self._turn = turn
        self._done = done
        self._name = name

    def go_on(self) -> None:
        self._done.append(self._name)
        if self._name == "faulty":
            raise ZeroDivisionError
        while self.work and self._turn.left > 0:
            self.work -= 1
            self._turn.left -= 1
        if self.work:
            self._turn.wait(self)


async def test_connections_share_the_work_of_a_turn() -> None:
    turn, done = Turn(), list[str]()
    workers = [Worker(turn, 1000, done, name) for name in "abcdefgh"]
    for worker in workers:
        turn.wait(worker)
    assert done == []
    await turns(1)
    assert done == list("abcde")
    assert sum(worker.work for worker in workers) == 8 * 1000 - TURN_WORK
    await turns(1)
    assert done == list("abcdefghab")
    await turns(3)
    assert {worker.work for worker in workers} == {0}


async def test_one_connection_may_use_a_whole_turn() -> None:
    turn, done = Turn(), list[str]()
    worker = Worker(turn, 2 * TURN_WORK, done)
    turn.wait(worker)
    await turns(1)
    assert worker.work == TURN_WORK
    await turns(2)
    assert worker.work == 0


async def test_work_that_exceeds_a_share() -> None:
    turn, done = Turn(), list[str]()
    first, second = Worker(turn, 0, done, "a"), Worker(turn, 1, done, "b")
    turn.wait(first)
    turn.wait(second)
    first.go_on = lambda: setattr(turn, "left", turn.left - 10 * TURN_WORK)  # type: ignore[method-assign]
    await turns(1)
    assert (second.work, turn.left <= 0) == (1, True)
    await turns(1)
    assert second.work == 0


async def test_a_connection_that_fails_is_closed_and_the_others_continue(
    caplog: pytest.LogCaptureFixture,
) -> None:
    turn, done = Turn(), list[str]()
    turn.wait(Worker(turn, 1, done, "faulty"))
    turn.wait(Worker(turn, 1, done, "b"))
    await turns(1)
    assert done == ["faulty", "faulty closed", "b"]
    assert "ZeroDivisionError" in caplog.text


async def test_a_little_work_is_allowed_at_any_time() -> None:
    turn = Turn()
    turn.admit()
    assert turn.left == TURN_WORK
    turn.left = -5
    turn.admit()
    assert 0 < turn.left < TURN_WORK / 5
