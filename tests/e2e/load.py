"""Requests that clients send while a test does something to the server."""

import asyncio
from collections import Counter
from collections.abc import Callable

import httpx

from tests.e2e.server import Server


def statuses_while(
    server: Server, act: Callable[[], None], *, path: str, body: object, answer: object = None, clients: int
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
        async with httpx.AsyncClient(base_url=server.base, timeout=30, verify=False) as http:
            running = [asyncio.create_task(client(http, stop, statuses)) for _ in range(clients)]
            await asyncio.to_thread(act)
            stop.set()
            await asyncio.gather(*running)
        return statuses

    return asyncio.run(run())
