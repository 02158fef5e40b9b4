"""Right answers: a real model under concurrency, bad requests among good ones, errors of every kind."""

import asyncio
import importlib
import json
from collections import Counter
from collections.abc import Iterator

import httpx
import numpy as np
import pytest

from tests.e2e.server import HTTP, PROBE, ROOT, Server, eventually, serving
from tests.loops import HANG_S

DIGITS = ROOT / "examples/digits"


@pytest.fixture(scope="module")
def probe() -> Iterator[Server]:
    """One server with two workers for all tests that leave it whole."""
    limits = ("--max-body-bytes", "100000", "--mb-max-batch-size", "100")
    with serving(PROBE, "--workers", "2", *limits) as server:
        yield server


async def post_all(server: Server, path: str, bodies: list[bytes]) -> list[httpx.Response]:
    """Send all bodies at once, each on a connection of its own."""
    limits = httpx.Limits(max_connections=len(bodies))
    async with httpx.AsyncClient(base_url=server.base, limits=limits, timeout=HANG_S) as client:
        headers = {"content-type": "application/json"}
        return await asyncio.gather(*[client.post(path, content=body, headers=headers) for body in bodies])


def post(server: Server, path: str, body: object, **headers: str) -> httpx.Response:
    """Send one JSON body."""
    return HTTP.post(f"{server.base}{path}", json=body, headers=headers)


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


def test_large_bodies_are_not_mixed_up(probe: Server) -> None:
    """Two are more than a socket buffers; small ones come in between."""
    texts = [f"{number} " * 30_000 for number in range(10, 34)]
    sizes = []
    for these in (texts, texts[::-1], [text[:9] for text in texts], texts):
        bodies = [json.dumps([text]).encode() for text in these]
        replies = asyncio.run(post_all(probe, "/remember", bodies))
        assert [reply.json() for reply in replies] == [[text] for text in these]
        if these[0] in texts:
            sizes += [int(reply.headers["x-batch-size"]) for reply in replies]
    assert max(sizes) >= 2


def test_many_rows_are_answered_in_the_same_form(probe: Server) -> None:
    assert post(probe, "/add", [1, 2]).json() == 3
    assert post(probe, "/add", [[1, 2], [3, 4]]).json() == [3, 7]
    assert post(probe, "/add", [[1, 2]]).json() == [3]


def test_a_request_larger_than_a_batch_is_answered_whole(probe: Server) -> None:
    """The handler is called in chunks of at most the limit; the client sees one answer."""
    rows = [[n, n] for n in range(350)]

    reply = post(probe, "/add", rows)

    assert reply.json() == [2 * n for n in range(350)]
    assert reply.headers["x-batch-size"] == "350"


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


def test_a_handler_that_raises_answers_with_an_id_and_nothing_else(probe: Server) -> None:
    reply = post(probe, "/fail", 1)

    assert reply.status_code == 500
    assert "secret" not in reply.text
    error_id = reply.json()["detail"].split()[-1]
    eventually(lambda: error_id in probe.output and "secret detail" in probe.output)


@pytest.mark.parametrize(
    ("method", "path", "content_type", "body", "status"),
    [
        ("GET", "/add", "application/json", b"", 405),
        ("POST", "/nowhere", "application/json", b"1", 404),
        ("POST", "/add", "text/csv", b"1,2", 415),
        ("POST", "/remember", "application/json", b'"' + b"x" * 100_000 + b'"', 413),
    ],
)
def test_requests_that_do_not_fit_are_refused(
    probe: Server, method: str, path: str, content_type: str, body: bytes, status: int
) -> None:
    """Unknown routes, wrong methods, wrong types and bodies over the limit have a status each."""
    headers = {"content-type": content_type}
    reply = httpx.request(method, f"{probe.base}{path}", content=body, headers=headers)

    assert reply.status_code == status
    assert reply.json()["status"] == status


def test_a_client_that_gives_up_early_gets_504(probe: Server) -> None:
    """X-Request-Timeout-Ms brings the deadline of a held request forward."""

    async def run() -> tuple[list[httpx.Response], httpx.Response]:
        async with httpx.AsyncClient(base_url=probe.base, timeout=HANG_S) as client:
            busy = [asyncio.create_task(client.post("/sleep", json=1.5)) for _ in range(2)]
            await asyncio.to_thread(eventually, lambda: probe.metric("uncork_workers", state="busy") >= 1)
            blocking = asyncio.create_task(client.post("/sleep_once", json=1.5))
            await asyncio.to_thread(eventually, lambda: probe.metric("uncork_workers", state="busy") == 2)
            late = await client.post("/recall", json=1, headers={"x-request-timeout-ms": "50"})
            return [*await asyncio.gather(*busy), await blocking], late

    others, late = asyncio.run(run())

    assert late.status_code == 504
    assert [reply.status_code for reply in others] == [200, 200, 200]


def test_reply_headers_say_where_the_time_went(probe: Server) -> None:
    timing = post(probe, "/sleep", 0.05).headers["server-timing"]

    parts = dict(part.strip().split(";dur=") for part in timing.split(","))
    assert float(parts["queue"]) >= 0
    assert float(parts["batch"]) >= 50
