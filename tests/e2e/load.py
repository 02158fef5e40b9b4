"""Requests that clients send while a test does something to the server."""

import asyncio
import itertools
import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any, NamedTuple

import httpx

from tests.e2e.server import Server
from tests.loops import HANG_S


class Reply(NamedTuple):
    """What became of a request.

    Attributes:
        number: the number of the request, from 1.
        began: when it was sent, by the monotonic clock.
        seconds: until its reply.
        status: 0 if the connection failed.
        content: the body of the reply.
    """

    number: int
    began: float
    seconds: float
    status: int
    content: bytes

    @property
    def value(self) -> Any:
        return json.loads(self.content)


# Between a refusal and the next request of the same client.
_PAUSE_S = 0.1
_NONE: Mapping[str, str] = MappingProxyType({})


@contextmanager
def asking(
    server: Server,
    *,
    path: str,
    clients: int,
    body: Callable[[int], object] = lambda number: number,
    headers: Mapping[str, str] = _NONE,
) -> Iterator[list[Reply]]:
    """Have clients send one request after the other until the block ends.

    ``body`` makes the body of a request of its number, which no other has. Gives the replies, complete after
    the block.
    """
    stop, numbers, replies = threading.Event(), itertools.count(1), list[Reply]()

    async def client(http: httpx.AsyncClient) -> None:
        while not stop.is_set():
            number, began = next(numbers), time.monotonic()
            status, content = 0, b""
            try:
                reply = await http.post(path, json=body(number), headers=dict(headers))
            except httpx.HTTPError:
                pass
            else:
                status, content = reply.status_code, reply.content
            replies.append(Reply(number, began, time.monotonic() - began, status, content))
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


def are_doubles(replies: Sequence[Reply]) -> bool:
    """Whether every 200 has the double of the number that was sent."""
    return all(reply.status != 200 or reply.value == 2 * reply.number for reply in replies)


def statuses_while(
    server: Server,
    act: Callable[[], None],
    *,
    path: str,
    body: object,
    answer: object = None,
    clients: int,
    headers: Mapping[str, str] = _NONE,
) -> Counter[int]:
    """Return the statuses of requests that clients send until ``act`` returns.

    Every 200 must have the ``answer``, if one is given.
    """
    with asking(server, path=path, clients=clients, body=lambda _: body, headers=headers) as replies:
        act()
    assert all(answer is None or reply.status != 200 or reply.value == answer for reply in replies)
    return Counter(reply.status for reply in replies)
