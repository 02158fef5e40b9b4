"""The open loop of a chaos run against a scripted server."""

import asyncio
from collections import deque
from itertools import count
from urllib.parse import urlsplit

import msgspec
import pytest

from benchmarks.chaos.faults import LEAVE, POISON
from benchmarks.chaos.ledger import Ledger
from benchmarks.chaos.load import Connection, Load
from benchmarks.chaos.questions import Row, ask, right_answer
from benchmarks.chaos.waiting import comes_true
from tests.loadtests.fake_server import Handler, reply, serving
from tests.loops import HANG_S, other_tasks

JUNK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}"


def right(body: bytes) -> bytes:
    """Answer as the service does."""
    value = msgspec.json.decode(body)
    if "instances" in value:
        rows = [right_answer(msgspec.convert(row, Row)) for row in value["instances"]]
        return reply(msgspec.json.encode({"predictions": rows}))
    row = msgspec.convert(value, Row)
    return reply(b"{}", status="500 Failed") if row.act else reply(msgspec.json.encode(right_answer(row)))


def loaded(handler: Handler, *, until: int, poison: int = 0) -> Ledger:
    async def run() -> Ledger:
        ledger = Ledger(timeout_s=HANG_S)
        async with serving(handler) as url, asyncio.timeout(HANG_S):
            load = Load(ledger, port=port_of(url), rate=2000.0, seed=1, numbers=count(1))
            for _ in range(poison):
                load.slip_in("raise", POISON)
            running = asyncio.create_task(load.run())
            await comes_true(lambda: ledger.sent >= until)
            load.stop()
            await running
            await comes_true(lambda: not ledger.outstanding)
            await load.close()
            await server_done()
        return ledger

    return asyncio.run(run())


async def server_done() -> None:
    """Wait until it has noticed that all connections are closed."""
    await comes_true(lambda: not other_tasks())


def port_of(url: str) -> int:
    port = urlsplit(url).port
    assert port is not None
    return port


def test_good_answers_are_good() -> None:
    async def handle(body: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(right(body))

    ledger = loaded(handle, until=200, poison=3)

    assert ledger.findings == []
    assert ledger.statuses[500] == ledger.tallies[POISON.name].statuses[500] == 3
    assert ledger.sent == sum(ledger.statuses.values()) >= 200


def test_answers_that_change_places_are_found() -> None:
    before = deque[bytes]()

    async def handle(body: bytes, writer: asyncio.StreamWriter) -> None:
        before.append(body)
        writer.write(right(before.popleft() if len(before) > 1 else body))

    ledger = loaded(handle, until=40)

    assert ledger.wrong == len(ledger.findings) == ledger.statuses[200] - 1 >= 39


@pytest.mark.parametrize(
    ("sent", "lost", "wrong"),
    [(b"", 1, 0), (b"HTTP/1.1 200 OK\r\n", 1, 0), (JUNK + JUNK, 0, 1), (b"?\r\n\r\n", 0, 1)],
)
def test_every_bad_end_is_found(sent: bytes, lost: int, wrong: int) -> None:
    served = count(1)

    async def handle(body: bytes, writer: asyncio.StreamWriter) -> None:
        if next(served) == 5:
            writer.write(sent)
            writer.close()
        else:
            writer.write(right(body))

    ledger = loaded(handle, until=50)

    assert (ledger.lost, ledger.wrong) == (lost, wrong)


async def test_those_who_leave_are_not_lost() -> None:
    ledger = Ledger(timeout_s=HANG_S)

    async def handle(body: bytes, writer: asyncio.StreamWriter) -> None:
        """Answer nothing."""

    async with serving(handle) as url, asyncio.timeout(HANG_S):
        leavers = [Connection(ledger) for _ in range(3)]
        for number, leaver in enumerate(leavers):
            await asyncio.get_running_loop().create_connection(
                lambda leaver=leaver: leaver,  # type: ignore[misc]
                "127.0.0.1",
                port_of(url),
            )
            leaver.ask(ask(number), own=LEAVE, share=0.5)
        leavers[0].close()
        leavers[1].abort()
        leavers[2].half_close()
        await comes_true(lambda: not ledger.outstanding)
        leavers[2].abort()
        await server_done()

    assert (ledger.findings, ledger.left) == ([], 3)
