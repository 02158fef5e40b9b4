"""Lines about refused peers, in virtual time."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from tests.dispatcher.virtual_loop import VirtualLoop
from tests.loops import run
from uncork_gateway.backends.refusal_log import RefusalLog


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> Callable[[], list[str]]:
    def taken() -> list[str]:
        messages = list(caplog.messages)
        caplog.clear()
        return messages

    return taken


def virtually(scenario: Coroutine[Any, Any, None]) -> None:
    run(scenario, loop_factory=VirtualLoop)


def test_a_flood_takes_a_line_per_minute_and_reason(lines: Callable[[], list[str]]) -> None:
    async def scenario() -> None:
        log = RefusalLog()
        for second in range(150):
            log.refused("too_many", f"peer {second}", "too many")
            await asyncio.sleep(1)
        log.refused("token", "stranger", "another token")
        assert lines() == [
            "refused a worker from peer 0: too many",
            "refused 59 more for the same reason (too_many) within a minute, the last one from peer "
            "59: too many",
            "refused 60 more for the same reason (too_many) within a minute, the last one from peer "
            "119: too many",
            "refused a worker from stranger: another token",
        ]
        log.close()
        assert lines() == [
            "refused 30 more for the same reason (too_many) within a minute, the last one from peer "
            "149: too many"
        ]

    virtually(scenario())


def test_the_first_refusal_after_a_quiet_minute_is_logged_at_once(lines: Callable[[], list[str]]) -> None:
    async def scenario() -> None:
        log = RefusalLog()
        for number in range(4):
            log.refused("token", f"peer {number}", "another token")
            await asyncio.sleep(61)
        assert lines() == [f"refused a worker from peer {number}: another token" for number in range(4)]
        log.close()
        assert lines() == []

    virtually(scenario())


def test_a_peer_cannot_forge_lines(lines: Callable[[], list[str]]) -> None:
    async def scenario() -> None:
        log = RefusalLog()
        for _ in range(2):
            log.refused("invalid", "stranger", "x\nERROR gateway: all is lost")
        log.close()
        assert all(line.isprintable() for line in lines())

    virtually(scenario())
