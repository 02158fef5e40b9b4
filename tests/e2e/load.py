"""Requests that clients send while a test does something to the server."""

import asyncio
import itertools
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import NamedTuple

import httpx

from tests.e2e.server import Server
from tests.loops import HANG_S


def statuses_while(
    server: Server,
    act: Callable[[], None],
    *,
    path: str,
    body: object,
    answer: object = None,
    clients: int,
    headers: Mapping[str, str] = MappingProxyType({}),
) -> Counter[int]:
    """Return the statuses of requests that clients send, one after the other, until ``act`` returns.

    Every 200 must have the ``answer``, if one is given.
    """

    async def client(http: httpx.AsyncClient, stop: asyncio.Event, statuses: Counter[int]) -> None:
        while not stop.is_set():
            reply = await http.post(path, json=body)
            statuses[reply.status_code] += 1
            assert answer is None or reply.status_code != 200 or reply.json() == answer

    async def run() -> Counter[int]:
        stop, statuses = asyncio.Event(), Counter[int]()
        async with httpx.AsyncClient(
            base_url=server.base, timeout=HANG_S, verify=False, headers=dict(headers)
        ) as http:
            running = [asyncio.create_task(client(http, stop, statuses)) for _ in range(clients)]
            try:
                await asyncio.to_thread(act)
            finally:
                stop.set()
                await asyncio.gather(*running)
        return statuses

    return asyncio.run(run())


class Reply(NamedTuple):
    """What became of a request.

    Attributes:
        began: when it was sent, by the monotonic clock.
        seconds: until its reply.
        status: 0 if the connection failed.
        is_right: whether a 200 has the answer to this request, and to no other.
    """

    began: float
    seconds: float
    status: int
    is_right: bool


# Between a refusal and the next request of the same client.
_PAUSE_S = 0.1


@contextmanager
def doubling(server: Server, *, path: str, clients: int) -> Iterator[list[Reply]]:
    """Have clients ask for the double of a number until the block ends; no number is sent twice.

    Gives the replies, complete after the block.
    """
    stop, numbers, replies = threading.Event(), itertools.count(1), list[Reply]()

    async def client(http: httpx.AsyncClient) -> None:
        while not stop.is_set():
            number, began = next(numbers), time.monotonic()
            status, is_right = 0, True
            try:
                reply = await http.post(path, json=number)
            except httpx.HTTPError:
                pass
            else:
                status = reply.status_code
                is_right = status != 200 or reply.json() == 2 * number
            replies.append(Reply(began, time.monotonic() - began, status, is_right))
            if status != 200:
                await asyncio.sleep(_PAUSE_S)

    async def run() -> None:
        async with httpx.AsyncClient(base_url=server.base, timeout=HANG_S, verify=False) as http:
            await asyncio.gather(*(client(http) for _ in range(clients)))

    thread = threading.Thread(target=lambda: asyncio.run(run()))
    thread.start()
    try:
        yield replies
    finally:
        stop.set()
        thread.join()
