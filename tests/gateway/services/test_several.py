"""Several services in one gateway."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from tests.gateway.fake_worker import FakeWorker, array_api, json_api, service
from tests.gateway.gateway_stage import GatewayStage, gateway, problem
from tests.gateway.grpc.call_stage import CallStage, InferRequest
from tests.gateway.proxy_stage import Caller, Front
from tests.gateway.running import turns
from tests.gateway.stage import detail
from tests.loops import raise_problems
from uncork_gateway.grpc.statuses import Code
from uncork_gateway.services.served_service import ServedService
from uncork_workers.wire.messages import Batch
from uncork_workers.wire.schema import CSV, JSON, ApiDescription, ApiSettings, ServiceDescription


@pytest.fixture
async def on(tmp_path: Path) -> AsyncIterator[GatewayStage]:
    """A gateway with the service ``a``."""
    async with gateway(tmp_path, name="a") as made:
        yield made
    raise_problems()


class Two:
    """A gateway with the services ``a`` and ``b``, which both have an API ``echo``.

    ``b`` has only the routes with its name.
    """

    def __init__(self, on: GatewayStage, b: ServedService) -> None:
        self.on = on
        self.a, self.b = on.service, b

    async def workers(self) -> tuple[FakeWorker, FakeWorker]:
        return await self.on.worker(), await self.on.worker(of=self.b)


async def two(on: GatewayStage, **of_b: object) -> Two:
    """Add ``b`` to a gateway with ``a``."""
    return Two(on, await on.add("b", **{"own_routes": False, **of_b}))


async def statuses(on: GatewayStage, *paths: str) -> list[int]:
    return [(await on.http.get(path)).status_code for path in paths]


def sample(on: GatewayStage, name: str, **labels: str) -> float | None:
    return on.gateway.front_end.exposition.registry.get_sample_value(name, labels)


async def one_runs_one_waits(
    on: GatewayStage, worker: FakeWorker, path: str
) -> tuple[list[asyncio.Task[httpx.Response]], tuple[Batch, bytes]]:
    """Send the requests 0 and 1 to a worker; return both, and the batch of the first with its payload."""
    asking = [on.post(path, 0)]
    running = await worker.batch()
    asking.append(on.post(path, 1))
    await turns(50)
    return asking, running


async def test_metrics_and_pages_tell_them_apart(on: GatewayStage) -> None:
    both = await two(on)
    of_a, of_b = await both.workers()
    for path, worker in (("/a/echo", of_a), ("/b/echo", of_b), ("/b/echo", of_b)):
        await on.echo(worker, path, 1)

    counted = {"api": "echo", "protocol": "http", "status": "200"}
    assert sample(on, "uncork_requests_total", service="a", **counted) == 1
    assert sample(on, "uncork_requests_total", service="b", **counted) == 2
    metrics = (await on.http.get("/metrics")).text
    assert metrics.count("# TYPE uncork_requests_total counter") == 1

    status = (await on.http.get("/status")).json()
    assert status["server"] == "gateway"
    assert [one["name"] for one in status["services"]] == ["a", "b"]
    assert [(one["id"], one["service"]) for one in status["apis"]] == [("a/echo", "a"), ("b/echo", "b")]
    assert [one["service"] for one in status["workers"]] == ["a", "b"]

    paths = (await on.http.get("/openapi.json")).json()["paths"]
    assert {"/echo", "/b/echo"} <= paths.keys()
    home = (await on.http.get("/", headers={"accept": "text/html"})).text
    assert "/b/echo" in home


async def test_all_must_be_ready_once_and_one_from_then_on(on: GatewayStage) -> None:
    """A service that crashes must not take the others out of a load balancer."""
    both = await two(on)
    probes = "/readyz", "/readyz/a", "/readyz/b", "/readyz/c"
    assert await statuses(on, *probes) == [503, 503, 503, 404]
    of_a = await on.worker()
    assert await statuses(on, *probes) == [503, 200, 503, 404]
    why = problem(await on.http.get("/readyz"), 503)
    assert why.startswith("b: ")
    of_b = await on.worker(of=both.b)
    assert await statuses(on, *probes) == [200, 200, 200, 404]

    of_a.close()
    await turns(50)
    assert await statuses(on, *probes) == [200, 503, 200, 404]
    of_b.close()
    await turns(50)
    assert await statuses(on, *probes) == [503, 503, 503, 404]
    why = problem(await on.http.get("/readyz"), 503)
    assert why.startswith("a: ")
    assert "; b: " in why


async def test_one_version_is_enough_unless_another_is_asked_for(tmp_path: Path) -> None:
    async with gateway(tmp_path, name="a@1") as on:
        second = await on.add("a@2")
        await on.worker(of=second)
        assert await statuses(on, "/readyz/a", "/readyz/a@1", "/readyz/a@2") == [200, 503, 200]


async def test_a_shadow_is_not_enough(on: GatewayStage) -> None:
    """It answers nobody who does not name its version."""
    shadow = await on.add("a@2", own_routes=False, shadow=True)
    await on.worker(of=shadow)
    probes = "/readyz", "/readyz/a", "/readyz/a@2"
    assert await statuses(on, *probes) == [503, 503, 200]
    of_a = await on.worker()
    assert await statuses(on, *probes) == [200, 200, 200]
    of_a.close()
    await turns(50)
    assert await statuses(on, *probes) == [503, 503, 200]


@pytest.mark.parametrize(
    ("of_first", "of_second"), [({}, {"shadow": True}), ({"weight": 1.0}, {})], ids=["shadow", "weight"]
)
async def test_pages_describe_the_version_that_answers(
    tmp_path: Path, of_first: dict[str, Any], of_second: dict[str, Any]
) -> None:
    """Not a higher one that gets no request without a version."""
    async with gateway(tmp_path, name="a", **of_first) as on:
        second = await on.add("a@2", own_routes=False, **of_second)
        await on.worker()
        await on.worker(of=second, serves=service(array_api()))
        for path, datatype in (
            ("/v2/models/a", "BYTES"),
            ("/v2/models/a/versions/1", "BYTES"),
            ("/v2/models/a/versions/2", "FP32"),
        ):
            [told] = (await on.http.get(path)).json()["inputs"]
            assert told["datatype"] == datatype


async def test_the_document_describes_the_version_that_answers(on: GatewayStage) -> None:
    """Whichever is the last of those that share a route."""
    shadow = await on.add("a@2", shadow=True)
    await on.worker()
    await on.worker(of=shadow, serves=service(array_api()))
    echo = (await on.http.get("/openapi.json")).json()["paths"]["/echo"]["post"]
    assert echo["operationId"] == "a.echo"
    assert list(echo["requestBody"]["content"]) == ["application/json"]


async def test_services_of_one_route_are_refused(on: GatewayStage) -> None:
    """The one that was there first stays; the message names both, and the fix."""
    of_a = await on.worker()
    b = await on.add("b")
    with pytest.raises(ValueError, match="services a and b both serve POST /echo; set own_routes = false"):
        b.events.serve(service())
    assert (await on.echo(of_a, "/echo", 1))[1].status_code == 200


@pytest.mark.parametrize("taker_comes_first", [True, False])
async def test_a_route_below_the_name_of_another_is_refused(
    on: GatewayStage, taker_comes_first: bool
) -> None:
    taker = service(ApiDescription(name="mine", route="/b/echo", input={"kind": "json"}))
    owner = service(ApiDescription(name="echo", route="/other", input={"kind": "json"}))
    both = await two(on, own_routes=True)
    if taker_comes_first:
        await on.worker(serves=taker)
        refused, serves = both.b, owner
    else:
        await on.worker(serves=owner, of=both.b)
        refused, serves = both.a, taker
    with pytest.raises(ValueError, match="route /b/echo, which belongs to the service b"):
        refused.events.serve(serves)


async def test_a_service_may_have_a_route_below_its_own_name(on: GatewayStage) -> None:
    """That of the author counts."""
    apis = json_api(), ApiDescription(name="mine", route="/a/echo", input={"kind": "json"})
    of_a = await on.worker(serves=service(*apis))
    batch, _ = await on.echo(of_a, "/a/echo", 1)
    assert batch.api == "mine"


async def test_a_removed_service_answers_what_it_has_accepted(on: GatewayStage) -> None:
    """The other one does not notice; the name can be used again, and its counts begin anew."""
    both = await two(on)
    of_a, of_b = await both.workers()
    asking, (running, payload) = await one_runs_one_waits(on, of_b, "/b/echo")
    uploading = Caller(Front(on.gateway))
    uploading.send(b"POST /b/echo HTTP/1.1\r\nhost: test\r\ncontent-length: 1\r\n\r\n")
    removing = asyncio.create_task(on.gateway.remove(both.b))
    await turns()
    assert (await on.http.post("/b/echo", json=1)).status_code == 404
    uploading.send(b"2")
    assert detail(await uploading.reply(), 503) == "this API was removed"
    assert (await on.echo(of_a, "/a/echo", 1))[1].status_code == 200
    of_b.answer(running, [payload])
    waiting, payload = await of_b.batch()
    of_b.answer(waiting, [payload])
    assert [(await one).json() for one in asking] == [0, 1]
    await removing
    await of_b.dropped()
    assert on.gateway.services == [both.a]
    assert await statuses(on, "/readyz", "/readyz/b") == [200, 404]
    assert 'service="b"' not in (await on.http.get("/metrics")).text

    again = await on.add("b", own_routes=False)
    assert (await on.echo(await on.worker(of=again), "/b/echo", 1))[1].status_code == 200
    labels = {"service": "b", "api": "echo", "protocol": "http", "status": "200"}
    assert sample(on, "uncork_requests_total", **labels) == 1


async def test_without_a_service_no_page_asks_to_try_again(on: GatewayStage) -> None:
    """Clients may unload the last one."""
    await on.worker()
    await on.gateway.remove(on.service)
    assert problem(await on.http.get("/readyz"), 503) == "no service is served"
    document = await on.http.get("/openapi.json")
    assert problem(document, 404) == "no service is served"
    assert "retry-after" not in document.headers
    assert problem(await on.http.post("/a/echo", json=1), 404) == "no route for /a/echo"
    await on.worker(of=await on.add("a"))
    assert (await on.http.get("/openapi.json")).status_code == 200


async def test_a_removed_service_does_not_come_back(on: GatewayStage) -> None:
    """Not even if its worker is lost meanwhile, and the next one describes other APIs."""
    both = await two(on)
    _, of_b = await both.workers()
    asking = on.post("/b/echo", 1)
    await of_b.batch()
    removing = asyncio.create_task(on.gateway.remove(both.b))
    await turns()
    of_b.close()
    await turns(50)
    other = await on.worker(of=both.b, serves=service(json_api("echo"), json_api("other")))
    batch, payload = await other.batch()
    other.answer(batch, [payload])
    assert (await asking).json() == 1
    await removing
    for path in ("/b/echo", "/b/other"):
        assert (await on.http.post(path, json=1)).status_code == 404


async def test_pages_list_them_in_their_order(tmp_path: Path) -> None:
    """Whichever was described first."""
    async with gateway(tmp_path, name="b") as on:
        a = await on.add("a", own_routes=False)
        await on.worker(of=a)
        await on.worker()
        assert list((await on.http.get("/openapi.json")).json()["paths"])[:2] == ["/echo", "/a/echo"]
        assert list(on.gateway.catalogue.offers) == ["b", "a"]


async def test_a_drain_waits_for_both(on: GatewayStage) -> None:
    both = await two(on)
    workers = await both.workers()
    asking = [on.post("/a/echo", 1), on.post("/b/echo", 2)]
    running = [await worker.batch() for worker in workers]
    draining = asyncio.create_task(on.gateway.front_end.drain())
    await turns(50)
    assert on.gateway.front_end.unanswered() == 2
    for worker, (batch, payload) in zip(workers, running, strict=True):
        assert not draining.done()
        worker.answer(batch, [payload])
        await turns(50)
    assert [(await one).json() for one in asking] == [1, 2]
    await draining


async def test_a_withdrawn_api_answers_what_it_has_queued_and_can_be_restored(on: GatewayStage) -> None:
    """A reload that then fails leaves all as it was."""
    both = await two(on)
    of_a, of_b = await both.workers()
    asking, (running, payload) = await one_runs_one_waits(on, of_b, "/b/echo")
    withdrawing = asyncio.create_task(both.b.withdraw({"echo"}, timeout_s=60))
    await turns(50)
    assert (await on.http.post("/b/echo", json=1)).status_code == 404
    assert (await on.echo(of_a, "/echo", 1))[1].status_code == 200
    assert not withdrawing.done()
    of_b.answer(running, [payload])
    waiting, payload = await of_b.batch()
    await withdrawing
    of_b.answer(waiting, [payload])
    assert [(await one).json() for one in asking] == [0, 1]

    both.b.restore()
    assert (await on.echo(of_b, "/b/echo", 1))[1].status_code == 200


async def test_a_withdrawn_explainer_leaves_the_pages(on: GatewayStage) -> None:
    await on.worker(serves=service(json_api("predict"), json_api("explain")))
    explain = "/v1/models/{model}:explain"
    found = []
    for withdrawn in (set(), {"explain"}):
        await on.service.withdraw(withdrawn, timeout_s=60)
        reply = await on.http.get("/openapi.json")
        found.append((reply.status_code, explain in reply.json()["paths"]))

    assert found == [(200, True), (200, False)]


async def test_a_model_that_may_still_come_is_unavailable_to_grpc_clients(tmp_path: Path) -> None:
    """Once all services are described, an unknown one is not found."""
    ask = InferRequest(model_name="b").SerializeToString()
    async with gateway(tmp_path, name="a", grpc=True) as on:
        both = await two(on)
        of_a = await on.worker()
        calls = CallStage(on, of_a)
        _, stream = calls.ask(ask)
        assert await stream.end() == Code.UNAVAILABLE
        _, stream = calls.ask(InferRequest(model_name="c").SerializeToString())
        assert await stream.end() == Code.UNAVAILABLE
        await on.worker(of=both.b)
        _, stream = calls.ask(InferRequest(model_name="c").SerializeToString())
        assert await stream.end() == Code.NOT_FOUND


@pytest.mark.parametrize(
    "differing",
    [
        {},
        {"group_by": None},
        {"group_by": ("g",)},
        {"headers": ("x-tenant",)},
        {"offers": (CSV, JSON)},
        {"settings": ApiSettings(cost="bytes")},
    ],
)
async def test_a_shadow_with_the_same_contract_gets_each_part(
    on: GatewayStage, differing: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    """One that groups or reads requests otherwise gets no copies, and the log says so once."""

    def grouping(**differing: Any) -> ServiceDescription:
        return service(msgspec.structs.replace(json_api(), **{"group_by": "g", **differing}))

    shadow = await on.add("a@2", own_routes=False, shadow=True)
    real = await on.worker(serves=grouping())
    copies = await on.worker(of=shadow, serves=grouping(**differing))
    await on.worker(of=await on.add("b", own_routes=False))
    asking = on.post("/v1/models/a/versions/1:predict", {"instances": [{"g": "x"}, {"g": "y"}]})
    for name in (b'"x"', b'"y"'):
        batch, payload = await real.batch()
        assert batch.group == name
        real.answer(batch, [payload])
    assert (await asking).json() == {"predictions": [{"g": "x"}, {"g": "y"}]}
    if differing:
        assert caplog.text.count("version 2 of a gets no copies of requests to echo") == 1
        assert shadow.batching.shadow.total() == {}
        return
    for name in (b'"x"', b'"y"'):
        batch, payload = await copies.batch()
        assert batch.group == name
        copies.answer(batch, [payload])
    await turns(50)
    assert shadow.batching.shadow.total() == {"agreed": 1}


async def test_a_shadow_of_apis_with_several_routes_gets_copies(on: GatewayStage) -> None:
    """Of the requests to the API of the same name, whatever the order of APIs and routes."""
    one, other = json_api("echo"), json_api("other")
    serves = service(msgspec.structs.replace(one, aliases=("/e", "/alias")), other)
    shadow = await on.add("a@2", own_routes=False, shadow=True)
    real = await on.worker(serves=serves)
    copies = await on.worker(of=shadow, serves=serves)
    assert (await on.echo(real, "/alias", 1))[1].status_code == 200
    batch, payload = await copies.batch()
    assert batch.api == "echo"
    copies.answer(batch, [payload])
    assert (await on.echo(real, "/other", 1))[1].status_code == 200
    batch, _ = await copies.batch()
    assert batch.api == "other"
