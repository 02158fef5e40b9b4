"""The whole gateway: plain routes, batches to workers, and workers that connect and die."""

import asyncio
from pathlib import Path

import pytest

from tests.gateway.gateway_stage import GatewayStage, client_of, gateway, problem
from tests.gateway.running import turns
from uncork_workers.wire.messages import Batch


@pytest.mark.parametrize("path", ["/readyz", "/healthz", "/ping"])
async def test_a_gateway_is_ready_while_a_worker_takes_batches(on: GatewayStage, path: str) -> None:
    assert problem(await on.http.get(path), 503) == "no worker is ready: workers are starting"
    assert (await on.http.get("/livez")).text == "alive\n"
    assert not on.gateway.front_end.ready.is_set()
    one = await on.worker()
    two = await on.worker(index=1)
    ready = await on.http.get(path)
    assert (ready.status_code, ready.text) == (200, "ready\n")
    one.close()
    await turns(50)
    assert (await on.http.get(path)).status_code == 200
    two.close()
    await turns(50)
    on.service.events.worker_exited(1, "was killed by SIGKILL")
    message = problem(await on.http.get(path), 503)
    assert message == "no worker is ready: worker 1 was killed by SIGKILL"
    await on.worker(index=1)
    await on.gateway.front_end.drain()
    assert problem(await on.http.get(path), 503) == "the server is shutting down"


async def test_before_the_first_hello_every_route_is_503(on: GatewayStage) -> None:
    """The service may turn out to have such an API."""
    reply = await on.http.post("/echo", json=1)
    assert problem(reply, 503) == "no worker is ready: workers are starting"
    assert (reply.headers["retry-after"], reply.json()["reason"]) == ("1", "no_worker")

    worker = await on.worker()
    _, answer = await on.echo(worker, "/echo", 1)
    assert (answer.status_code, answer.json()) == (200, 1)


async def test_an_unknown_route_is_404(on: GatewayStage) -> None:
    """The message names it; an additional slash makes another route."""
    await on.worker()
    for path in ("/nothing", "/echo/", "/echo/x", "/livez/", "/livez/x"):
        for method in ("GET", "POST"):
            told = problem(await on.http.request(method, path), 404)
            assert told.startswith(f"no route for {path}; ")


async def test_a_wrong_method_is_405(on: GatewayStage) -> None:
    await on.worker()
    for method in ("GET", "PUT", "DELETE", "PATCH"):
        reply = await on.http.request(method, "/echo")
        assert problem(reply, 405) == f"{method} is not allowed for /echo; use POST"
        assert reply.headers["allow"] == "POST"
    bodiless = await on.http.head("/echo")
    assert (bodiless.status_code, bodiless.headers["allow"], bodiless.content) == (405, "POST", b"")
    plain = await on.http.post("/livez")
    problem(plain, 405)
    assert set(plain.headers["allow"].split(", ")) == {"GET", "HEAD"}


async def test_a_request_that_a_service_overtakes_is_503(on: GatewayStage) -> None:
    """Its head was read when there was no such API, so it goes to the pages."""
    await on.worker()
    async with client_of(on.gateway.front_end.app) as pages:
        reply = await pages.post("/echo", json=1)
    assert problem(reply, 503) == "the service has just become ready; send the request again"
    assert reply.headers["retry-after"] == "1"


async def test_a_request_goes_to_a_worker_and_back(on: GatewayStage) -> None:
    """Simultaneous requests share a batch; each gets its own status and body."""
    worker = await on.worker()
    first = on.post("/echo", 1)
    running, payload = await worker.batch()
    assert payload == b"1"
    asking = [on.post("/echo", value) for value in ("a", {"b": 2}, 3)]
    await turns(50)
    worker.answer(running, [b"1"])
    batch, payload = await worker.batch()
    worker.answer(batch, [b'"A"', b"wrong", b"oops"], statuses=[200, 400, 500], chunks=[(3, 0.01)])

    good, wrong, failed = await asyncio.gather(*asking)

    assert (await first).headers["x-batch-size"] == "1"
    named = good.headers["x-batch-id"]
    assert (batch, payload) == (
        Batch(2, "echo", 1000, [3, 7, 1], [1, 1, 1], id=named, left_s=batch.left_s),
        b'"a"{"b":2}3',
    )
    assert (good.status_code, good.json(), good.headers["x-batch-size"]) == (200, "A", "3")
    assert problem(wrong, 400) == "wrong"
    assert problem(failed, 500) == "oops"


async def test_batch_ids_are_of_this_gateway(tmp_path: Path) -> None:
    """Two gateways behind one load balancer never use the same id."""
    ids = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        async with gateway(tmp_path / name) as on:
            worker = await on.worker()
            for _ in range(2):
                _, reply = await on.echo(worker, "/echo", 1)
                ids.append(reply.headers["x-batch-id"])

    assert len(set(ids)) == 4
    assert [batch_id.rpartition("-")[2] for batch_id in ids] == ["1", "2", "1", "2"]


async def test_what_was_promised_to_an_api_is_kept_when_its_last_worker_dies(tmp_path: Path) -> None:
    """A batch that must not be repeated is lost; queued requests wait for another worker until their goal."""
    async with gateway(tmp_path, overrides={"idempotent": False, "mb_max_latency": 20}) as on:
        worker = await on.worker()
        running = on.post("/echo", 1)
        await worker.batch()
        held = on.post("/echo", 2)
        await turns(50)
        worker.close()

        assert problem(await running, 502) == "the worker died while running this request"
        assert problem(await held, 503) == "no worker is ready"


async def test_a_worker_that_dies_idle_is_not_given_batches(on: GatewayStage) -> None:
    """Later requests are refused at once; nothing is released for it."""
    worker = await on.worker()
    worker.close()
    await turns(50)

    assert problem(await on.http.post("/echo", json=1), 503) == "no worker is ready"
    assert "uncork_releases_total{" not in (await on.http.get("/metrics")).text


async def test_draining_answers_what_was_accepted(on: GatewayStage) -> None:
    worker = await on.worker()
    running = on.post("/echo", 1)
    batch, _ = await worker.batch()
    held = on.post("/echo", 2)
    await turns(50)
    draining = asyncio.create_task(on.gateway.front_end.drain())
    await turns()
    late = await on.http.post("/echo", json=3)
    assert problem(late, 503) == "the server is shutting down"
    assert int(late.headers["retry-after"]) >= 1
    assert not draining.done()
    worker.answer(batch, [b"1"])
    batch, _ = await worker.batch()
    worker.answer(batch, [b"2"])

    await draining
    assert [(await asking).json() for asking in (running, held)] == [1, 2]


async def test_a_gateway_that_retires_takes_requests(on: GatewayStage) -> None:
    """But /readyz tells load balancers to send no more."""
    worker = await on.worker()
    on.gateway.front_end.retire()
    assert problem(await on.ready(), 503) == "the server is shutting down"
    _, reply = await on.echo(worker, "/echo", 5)
    assert (reply.json(), reply.headers["connection"]) == (5, "close")


@pytest.mark.parametrize(
    "path",
    [
        "/livez",
        "/readyz",
        "/healthz",
        "/readyz/x",
        "/metrics",
        "/status",
        "/v2/health/ready",
        "/v2/health/live",
    ],
)
async def test_no_cache_keeps_a_state(on: GatewayStage, path: str) -> None:
    for _ in range(2):
        assert (await on.http.get(path)).headers["cache-control"] == "no-store"
        on.gateway.front_end.retire()


@pytest.mark.parametrize("path", ["/echo", "/livez"])
async def test_connections_are_closed_with_their_next_answer_in_a_drain(on: GatewayStage, path: str) -> None:
    """On the fast path and on the ASGI path."""
    await on.worker()
    await on.gateway.front_end.drain()
    reply = await (on.http.get(path) if path == "/livez" else on.http.post(path, json=1))
    assert reply.headers["connection"] == "close"


async def test_what_is_not_answered_in_a_drain_is_refused_at_its_end(on: GatewayStage) -> None:
    """Running requests too: an error is better than a broken connection."""
    worker = await on.worker()
    asking = [on.post("/echo", 1)]
    await worker.batch()
    asking.append(on.post("/echo", 2))
    await turns(50)
    draining = asyncio.create_task(on.gateway.front_end.drain())
    await turns()
    on.gateway.front_end.give_up()

    for one in asking:
        assert problem(await one, 503) == "the server is shutting down"
        assert (await one).headers["retry-after"] == "1"
    draining.cancel()


async def test_a_worker_that_talks_nonsense_is_killed(on: GatewayStage) -> None:
    bad = await on.worker()
    asking = on.post("/echo", 1)
    await bad.batch()
    good = await on.worker(index=1)
    bad.send_bytes(b"nonsense" * 2)
    batch, payload = await good.batch()
    good.answer(batch, [payload])

    assert (await asking).json() == 1
    assert on.killed == [1]
