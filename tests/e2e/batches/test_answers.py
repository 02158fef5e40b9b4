"""Right answers: a real model under concurrency, bad requests among good ones, errors of every kind."""

import asyncio
import importlib
import json
from collections import Counter
from collections.abc import Iterator

import httpx
import numpy as np
import pytest

from tests.e2e.server import PROBE, ROOT, Server, serving
from tests.loops import HANG_S

DIGITS = ROOT / "examples/digits"


@pytest.fixture(scope="module")
def probe() -> Iterator[Server]:
    """One server with two workers."""
    with serving(PROBE, "--workers", "2", "--mb-max-batch-size", "100") as server:
        yield server


async def post_all(server: Server, path: str, bodies: list[bytes]) -> list[httpx.Response]:
    """Send all bodies at once, each on a connection of its own."""
    limits = httpx.Limits(max_connections=len(bodies))
    async with httpx.AsyncClient(base_url=server.base, limits=limits, timeout=HANG_S) as client:
        headers = {"content-type": "application/json"}
        return await asyncio.gather(*[client.post(path, content=body, headers=headers) for body in bodies])


def test_the_digits_example_answers_as_the_model_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """64 concurrent single rows get what the model says in process, in real batches."""
    import joblib  # takes half a second

    monkeypatch.syspath_prepend(DIGITS)
    train = importlib.import_module("train")
    if not train.model_path().exists():
        train.train()
    forest = joblib.load(train.model_path())
    rows = train.split()[1][:64]

    with serving(f"{DIGITS / 'service.py'}:Digits", "--mb-max-latency", "60000") as server:
        bodies = [json.dumps(row.tolist()).encode() for row in rows]
        digits = asyncio.run(post_all(server, "/predict", bodies))
        chances = asyncio.run(post_all(server, "/predict_proba", bodies))

    assert [reply.json() for reply in digits] == forest.predict(rows).tolist()
    np.testing.assert_allclose([reply.json() for reply in chances], forest.predict_proba(rows))
    assert max(int(reply.headers["x-batch-size"]) for reply in digits) > 1
    batch_ids = {reply.headers["x-batch-id"] for reply in digits}
    assert len(batch_ids) < 64


def test_batches_are_limited_by_what_rows_weigh(probe: Server) -> None:
    """Texts share a batch up to the limit of 100 bytes, a longer one runs alone; the metrics count rows."""
    lengths = [250 if n == 30 else 5 + n % 40 for n in range(64)]
    bodies = [json.dumps({"text": "x" * length}).encode() for length in lengths]

    replies = asyncio.run(post_all(probe, "/weigh", [b'{"txt": "a"}', *bodies]))

    assert replies[0].status_code == 400
    assert replies[0].json()["detail"] == "the field 'text' is missing"
    assert [reply.json()[0] for reply in replies[1:]] == lengths
    totals = {reply.headers["x-batch-id"]: reply.json()[1] for reply in replies[1:]}
    batches = Counter(reply.headers["x-batch-id"] for reply in replies[1:])
    assert sorted(totals.values())[-1] == 250
    assert all(total <= 100 for total in sorted(totals.values())[:-1])
    assert max(batches.values()) > 1
    assert all(
        int(reply.headers["x-batch-size"]) == batches[reply.headers["x-batch-id"]] for reply in replies[1:]
    )


def test_malformed_requests_do_not_disturb_their_neighbours(probe: Server) -> None:
    """Each bad request gets its own 400, whichever side notices it, and the good ones their answers."""
    bad = [b"[1, 2", b"[[1, 2], [3]]", b'["a", 2]', b"[1, 2, 3]", b"[]", b"{}", b"", b"[1, null]"]
    bodies = [bad[n // 8] if n % 8 == 0 else b"[%d, 1]" % n for n in range(64)]

    replies = asyncio.run(post_all(probe, "/add", bodies))

    for n, reply in enumerate(replies):
        if n % 8 == 0:
            assert reply.status_code == 400
            assert reply.headers["content-type"] == "application/problem+json"
            assert reply.json()["status"] == 400
            assert reply.json()["detail"]
        else:
            assert (reply.status_code, reply.json()) == (200, n + 1)
