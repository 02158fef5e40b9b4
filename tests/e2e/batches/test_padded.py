"""Requests of different lengths, to a model that pads its batches."""

import asyncio
import random
import re
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.e2e.server import HTTP, ROOT, Server, serving
from tests.loops import HANG_S

pytestmark = pytest.mark.slow

PADDED = f"{ROOT / 'tests/e2e/services/groups.py'}:Padded"
SHORT, LONG = 20, 2000
_CLIENTS = 24
# Far more than learning takes.
_MOST_ROUNDS = 60


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with serving(PADDED) as server:
        yield server


def padding(server: Server, api: str) -> Any:
    """Return what /status says about the padding of an API."""
    [found] = [each for each in HTTP.get(f"{server.base}/status").json()["apis"] if each["name"] == api]
    return found["padding"]


async def separated(server: Server, api: str, measure: str) -> list[list[int]]:
    """Send texts of two lengths until lengths decide; return the lengths in the batches of two more rounds.

    Batches of few texts are apart by chance, so the ``measure`` must show that lengths decide. Every answer
    must be that of its own text.
    """
    random_, seen = random.Random(1), list[list[int]]()
    limits = httpx.Limits(max_connections=_CLIENTS)
    async with httpx.AsyncClient(base_url=server.base, limits=limits, timeout=HANG_S) as client:

        async def ask() -> list[int]:
            length = SHORT if random_.random() < 0.7 else LONG
            text = "".join(random_.choices("abcdefgh", k=length + random_.randrange(4)))
            reply = await client.post(f"/{api}", content=text, headers={"content-type": "text/plain"})
            answer = reply.json()
            assert answer["sum"] == sum(text.encode())
            # The bytes of the text as JSON, with its quotes.
            assert answer["cost"] == (len(text) + 2 if api == "with_cost" else None)
            among: list[int] = answer["among"]
            return among

        apart = 0
        for _ in range(_MOST_ROUNDS):
            among = await asyncio.gather(*[ask() for _ in range(2 * _CLIENTS)])
            apart = (
                apart + 1
                if all(shortest > LONG / 2 or longest < LONG / 2 for shortest, longest in among)
                else 0
            )
            seen += among
            found = await asyncio.to_thread(padding, server, api) or {}
            if apart >= 2 and found.get("measure") == measure:
                break
    return seen[-4 * _CLIENTS :]


@pytest.mark.parametrize(("api", "measure"), [("with_cost", "longest"), ("without_cost", "longest_bytes")])
async def test_texts_of_similar_length_share_a_batch(server: Server, api: str, measure: str) -> None:
    batches = await separated(server, api, measure)

    found = await asyncio.to_thread(padding, server, api)
    assert found["measure"] == measure
    assert 0 <= found["share"] < 1
    assert {longest > LONG / 2 for _, longest in batches} == {True, False}
    assert all(longest < 2 * shortest for shortest, longest in batches)
    metrics = HTTP.get(f"{server.base}/metrics").text
    assert re.search(rf'uncork_batch_padding_ratio{{[^}}]*api="{api}"', metrics)
