"""The five situations of which users ask: /status of a real gateway names the cause of each."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from .server import SERVICES, Server, eventually, serving

STAGED = f"{SERVICES / 'staged.py'}:Staged"
Document = dict[str, Any]


def status(server: Server) -> Document:
    """What it tells."""
    document: Document = httpx.get(f"{server.base}/status").json()
    return document


def of(document: Document, api: str) -> Document:
    """What it tells of an api."""
    told: Document = next(one for one in document["apis"] if one["name"] == api)
    return told


def advice(document: Document, api: str) -> dict[str, str]:
    """By code."""
    return {one["code"]: one["text"] for one in of(document, api)["advice"]}


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """Give a gateway with one worker."""
    with serving(STAGED, "--workers", "1") as running:
        yield running


def ask(server: Server, path: str, body: Any, *, times: int) -> None:
    """Ask several times, one after the other."""
    with httpx.Client(base_url=server.base, timeout=30) as http:
        for _ in range(times):
            http.post(path, json=body)


async def burst(server: Server, path: str, body: Any, *, times: int) -> int:
    """Ask several times at once; returns how many got 503."""
    async with httpx.AsyncClient(base_url=server.base, timeout=30) as http:
        replies = await asyncio.gather(*(http.post(path, json=body) for _ in range(times)))
    return sum(reply.status_code == 503 for reply in replies)


def test_idle(server: Server) -> None:
    """Nobody asks, and nothing is wrong."""
    document = status(server)

    unasked = of(document, "unasked")
    assert document["state"] == "ready"
    assert document["sentence"].startswith("1 worker is ready.")
    assert document["workers"][0]["doing"] == "waits for a batch"
    assert unasked["sentence"].startswith("No request has come in the last 30 s.")
    assert (unasked["waits_for"], unasked["limited_by"]) == ("nothing is held", "nothing")
    assert (unasked["advice"], unasked["why_refused"]) == ([], None)


def test_one_slow_model(server: Server) -> None:
    """Its smallest request takes longer than its goal."""
    ask(server, "/slow", 1, times=3)
    document = status(server)

    assert of(document, "slow")["limited_by"] == "goal"
    assert "The goal limits it: the smallest request takes 1" in of(document, "slow")["sentence"]
    text = advice(document, "slow")["goal_out_of_reach"]
    assert text.startswith("1 row takes 1")
    assert text.endswith("longer than mb_max_latency (50 ms): raise the goal or make the model faster")
    assert "slow is limited by its goal." in document["sentence"]
    assert of(document, "slow")["why_refused"] is None
    assert of(document, "unasked")["limited_by"] == "nothing"


def test_the_cap_is_reached(server: Server) -> None:
    """Most batches are as large as they may be."""
    ask(server, "/capped", [1, 2, 3, 4], times=8)
    document = status(server)

    capped = of(document, "capped")
    assert capped["limited_by"] == "cap"
    assert "The largest batch that is allowed limits it: with 4 rows" in capped["sentence"]
    assert "most batches are as large as they may be" in capped["why_this_size"]
    assert "because they were full (4 rows at most" in capped["why_this_size"]
    text = advice(document, "capped")["raise_cap"]
    assert text.startswith("the batch cap of 4 rows is reached in ")
    assert "raise mb_max_batch_size, for example to 8" in text
    assert capped["releases"]["full"] > sum(capped["releases"].values()) / 2


def test_overload(server: Server) -> None:
    """More comes than one worker can do: some is refused, and it is said why and what to do."""

    rows = list(range(10))
    ask(server, "/loaded", rows, times=6)
    refused = asyncio.run(burst(server, "/loaded", rows, times=30))
    document = status(server)

    loaded = of(document, "loaded")
    assert refused > 1
    assert loaded["requests"]["503"] == loaded["sheds"]["deadline"] == refused
    assert loaded["limited_by"] == "workers"
    assert "The workers limit it: 1 worker can answer" in loaded["sentence"]
    assert f"Lately {refused} requests (" in loaded["why_refused"]
    assert (
        "got 503 (deadline): they could not have been answered within the goal of 300 ms"
        in loaded["why_refused"]
    )
    text = advice(document, "loaded")["add_workers"]
    assert " of the requests are refused with 503, because " in text
    assert text.endswith("(--workers)")


def test_figures_agree_with_metrics(server: Server) -> None:
    """While all that happened is recent."""
    ask(server, "/slow", 1, times=2)
    ask(server, "/capped", [1, 2], times=4)
    document, text = status(server), httpx.get(f"{server.base}/metrics").text
    samples = [one for family in text_string_to_metric_families(text) for one in family.samples]

    for name in ("slow", "capped"):
        told = of(document, name)
        mine = [(one.name, one.labels, one.value) for one in samples if one.labels.get("api") == name]
        values = {metric: value for metric, labels, value in mine if labels.keys() == {"api"}}
        for metric, label, key in (
            ("requests", "status", "requests"),
            ("releases", "reason", "releases"),
            ("shed", "reason", "sheds"),
        ):
            counted = {labels[label]: value for one, labels, value in mine if one == f"uncork_{metric}_total"}
            assert counted == told[key]
        mean = values["uncork_batch_rows_sum"] / values["uncork_batch_rows_count"]
        assert told["mean_batch_rows"] == pytest.approx(mean)
        intercept_s = values["uncork_estimate_intercept_seconds"]
        assert told["estimate"]["intercept_ms"] == pytest.approx(intercept_s * 1000)


def test_a_dead_worker(server: Server) -> None:
    """Until another is there, it says what became of it; requests refused meanwhile are told of."""
    [before] = status(server)["workers"]
    os.kill(before["pid"], signal.SIGKILL)
    eventually(lambda: status(server)["state"] == "not_ready")
    refusal = httpx.post(f"{server.base}/unasked", json=1)
    document = status(server)
    eventually(server.ready)
    after = status(server)

    assert refusal.status_code == 503
    assert (
        document["sentence"] == "Nothing can be answered: no worker is ready: worker 0 was killed by SIGKILL."
    )
    unasked = of(document, "unasked")
    assert unasked["limited_by"] == "workers"
    assert unasked["sentence"].endswith(document["sentence"])
    assert advice(document, "unasked")["no_worker"] == "no worker is ready: worker 0 was killed by SIGKILL"
    [worker] = document["workers"]
    assert (worker["index"], worker["state"]) in ((0, "lost"), (0, "starting"))
    assert worker["doing"] == "worker 0 was killed by SIGKILL"
    assert (
        "got 503 (no_worker): nothing was ready to run them; 1 worker is ready now"
        in of(after, "unasked")["why_refused"]
    )
    assert (after["restarts"], after["state"]) == (1, "ready")
    assert after["workers"][0]["pid"] != before["pid"]
