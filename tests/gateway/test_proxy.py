"""The whole proxy: which requests are merged, held and refused, and what it reports."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.gateway.backends.model_servers.fake_server import Call, Reply, fake_server
from tests.gateway.client import JSON
from tests.gateway.proxy_stage import (
    V1,
    V2,
    Model,
    doubles,
    error,
    infer,
    merging,
    predictions,
    proxy,
    rows_body,
    served,
    sizes,
)
from tests.gateway.running import turns
from uncork_gateway.backends.model_servers import known_models
from uncork_gateway.proxy import Proxy
from uncork_gateway.settings import ProxySettings
from uncork_gateway.telemetry.exposition import CONTENT_TYPE

ROWS, TENSORS = b'{"instances": [1]}', b'{"inputs":[{"name":"x","shape":[1],"datatype":"INT64","data":[1]}]}'

ALONE = infer(1, parameters={"sequence_id": 1})


def dumb(call: Call) -> Reply:
    """A server that answers everything with one reply."""
    return Reply(b'{"predictions": [1], "outputs": [{"name":"y","shape":[1],"datatype":"INT64","data":[1]}]}')


# Which requests are merged


MERGED = [
    ("v1", V1, ROWS),
    ("v1", b"/a/prefix" + V1 + b"?q=1", ROWS),
    ("v2", V2, TENSORS),
    ("v2", b"/v2/models/m/versions/3/infer", TENSORS),
    ("tfserving", V1, ROWS),
    ("tfserving", b"/v1/models/m/versions/3:predict", ROWS),
    ("tfserving", b"/v1/models/m/labels/stable:predict", ROWS),
    ("auto", V1, ROWS),
    ("auto", V2, TENSORS),
    ("auto", b"/v1/models/m/versions/3:predict", ROWS),
    ("auto", b"/v1/models/m%2dx:predict", ROWS),
]
PASSED = [
    ("v1", V2, TENSORS),
    ("v1", b"/v1/models/m/versions/3:predict", ROWS),
    ("v2", V1, ROWS),
    ("tfserving", V2, TENSORS),
    ("auto", b"/v1/models/m:explain", ROWS),
    ("auto", b"/v1/models/m:classify", ROWS),
    ("auto", b"/v1/models/m:regress", ROWS),
    ("auto", b"/v2/models/m/generate", ROWS),
    ("auto", b"/v2/models/m/infer/", TENSORS),
    ("auto", b"/v2/repository/models/m/load", ROWS),
    ("auto", b"/", ROWS),
    ("auto", b"/readyz", ROWS),
    # Names of models that cannot be shown.
    *[("auto", b"/v1/models/%b:predict" % name, ROWS) for name in (b"%1b", b"a" * 257, b"(unknown)")],
    ("auto", b"/v1/models/%28unknown%29:predict", ROWS),
]


@pytest.mark.parametrize(("protocol", "target", "body"), MERGED)
async def test_predictions_are_merged(protocol: Any, target: bytes, body: bytes) -> None:
    """The path decides; the target is sent unchanged."""
    async with merging(dumb, protocol=protocol) as (on, model):
        reply = await on.ask(body, target).reply()

        assert (reply.status, reply.headers["x-batch-size"]) == (200, "1")
        assert [call.target for call in model.calls] == [target]


@pytest.mark.parametrize(("protocol", "target", "body"), PASSED)
async def test_other_requests_are_passed_through(protocol: Any, target: bytes, body: bytes) -> None:
    """Also those of other protocols, with unchanged bodies."""
    answer = Reply(b"anything", 200, ((b"content-length", b"8"),))
    async with merging(lambda call: answer, protocol=protocol) as (on, model):
        reply = await on.ask(body, target).reply()

        assert (reply.status, reply.body) == (200, b"anything")
        assert "x-batch-id" not in reply.headers
        assert [(call.target, call.body) for call in model.calls] == [(target, body)]


async def test_the_proxy_itself_tells_its_methods() -> None:
    """``*`` is no path of a model server."""
    async with merging(lambda call: Reply(b"", 200, ((b"allow", b"POST"),))) as (on, model):
        own = await on.http.request("OPTIONS", "/", extensions={"target": b"*"})
        of_server = await on.http.request("OPTIONS", "/v2")

        assert (own.status_code, own.headers["allow"]) == (204, "GET, HEAD, OPTIONS, POST")
        assert (of_server.status_code, of_server.headers["allow"]) == (200, "POST")
        assert [call.target for call in model.calls] == [b"/v2"]


@pytest.mark.parametrize(
    ("protocol", "target", "names"),
    [
        ("auto", V1, ["message", "batchId", "predictions"]),
        ("v1", V1, ["message", "batchId", "predictions"]),
        ("tfserving", V1, ["predictions"]),
        ("auto", b"/v1/models/m/versions/1:predict", ["predictions"]),
    ],
)
async def test_only_kserve_s_answers_name_their_batch(protocol: Any, target: bytes, names: list[str]) -> None:
    """TensorFlow Serving's replies have no field for it."""
    async with merging(protocol=protocol) as (on, _):
        reply = await on.ask(ROWS, target).reply()

        assert list(json.loads(reply.body)) == names


def knows_m(call: Call) -> Reply:
    """A server that knows one model, and answers 404 for all others."""
    return doubles(call) if call.target == V1 else Reply(b'{"error": "no such model"}', 404, (JSON,))


async def test_names_that_clients_invent_leave_no_trace() -> None:
    """They are not in /metrics or /status; their requests are merged and counted under one name."""
    async with merging(knows_m) as (on, _):
        for number in range(50):
            target = b"/v1/models/invented-%d:predict" % number
            replies = await on.replies([on.ask(ROWS, target), on.ask(ROWS, target), on.ask(ROWS)])
            assert [reply.status for reply in replies] == [404, 404, 200]
            assert {reply.headers["x-batch-size"] for reply in replies[:2]} == {"2"}

        metrics, status = await on.http.get("/metrics"), (await on.http.get("/status")).json()
        assert "invented" not in metrics.text
        assert 'uncork_requests_total{api="(unknown)",protocol="http",status="404"} 100.0' in metrics.text
        assert [api["name"] for api in status["apis"]] == ["m", "(unknown)"]
        assert status["apis"][1]["requests"] == {"404": 100}


async def test_a_request_that_cannot_be_merged_uses_its_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """A new model replaces the one that was idle longest, in the counts too."""
    monkeypatch.setattr(known_models, "_MOST", 2)

    async with merging(dumb) as (on, _):
        for name, body in ((b"a", TENSORS), (b"b", TENSORS), (b"a", ALONE), (b"c", TENSORS)):
            assert (await on.ask(body, b"/v2/models/%b/infer" % name).reply()).status == 200

        status = (await on.http.get("/status")).json()
        assert [api["name"] for api in status["apis"]] == ["a", "c", "(unknown)"]


async def test_a_model_that_nobody_asks_for_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """It disappears from /metrics and /status; its next request is merged as the first was."""
    monkeypatch.setattr(known_models, "_IDLE_S", 0.0)

    async with merging() as (on, _):
        for _ in range(2):
            assert predictions(await on.ask(ROWS).reply()) == [2]
            await turns()
            assert 'api="m"' not in (await on.http.get("/metrics")).text
            apis = (await on.http.get("/status")).json()["apis"]
            assert [api["name"] for api in apis] == ["(unknown)"]


# Holds, calls, refusals


async def test_a_request_is_held_no_longer_than_is_said() -> None:
    """This holds for any policy; without the bound the policy would wait for a full call."""
    async with merging(policy="fixed:3600000", max_hold_s=0.01) as (on, _):
        assert predictions(await on.ask(ROWS).reply()) == [2]


async def test_only_a_goal_refuses_those_who_are_late() -> None:
    """Behind a very slow call, once an estimate is known: 503 with Retry-After."""
    model = Model(doubles)
    async with served(model) as url, proxy(url, goal_s=1.0) as hasty, proxy(url) as patient:
        for row in range(8):
            await patient.ask(rows_body(row)).reply()
            await hasty.ask(rows_body(row)).reply()
        model.gate.clear()
        running = [patient.ask(rows_body(1)), hasty.ask(rows_body(2))]
        await model.called(16 + 2)
        held, late = patient.ask(rows_body(3)), hasty.ask(rows_body(4))
        refused = await late.reply()
        assert held.received == b""
        model.gate.set()

        assert [predictions(await caller.reply()) for caller in (*running, held)] == [[2], [4], [6]]
        message = "overloaded: this request cannot complete within the latency goal or the client's timeout"
        assert error(refused, 503) == message
        assert int(refused.headers["retry-after"]) >= 1


@pytest.mark.parametrize(
    ("target", "body", "text"),
    [
        (V1, ROWS, "no model server is ready"),
        (V2, TENSORS, "no model server is ready"),
        (b"/x", b"", "no server is healthy"),
    ],
)
async def test_without_a_healthy_server_it_is_503(target: bytes, body: bytes, text: str) -> None:
    async with fake_server(dumb) as server:
        await server.stop()
        async with proxy(server.url, healthy=False) as on:
            reply = await on.ask(body, target).reply()

            assert error(reply, 503) == text
            assert reply.headers["retry-after"] == "1"
            assert (await on.http.get("/livez")).text == "alive\n"


async def test_what_is_held_at_the_end_is_answered() -> None:
    """At once and in one call. Later requests are refused; the drain ends with the last reply."""
    async with merging(policy="fixed:3600000", max_hold_s=3600) as (on, model):
        model.gate.clear()
        callers = [on.ask(rows_body(1)), on.ask(rows_body(2))]
        await turns()
        draining = asyncio.create_task(on.proxy.front_end.drain())
        await model.called(1)
        late = await on.ask(rows_body(3)).reply()
        passed = await on.http.get("/v1/models")
        assert not draining.done()
        model.gate.set()
        replies = await on.replies(callers)
        await draining

        assert [predictions(reply) for reply in replies] == [[2], [4]]
        assert sizes(model) == [2]
        assert error(late, 503) == "the server is shutting down"
        assert int(late.headers["retry-after"]) >= 1
        assert error(passed, 503) == "the server is shutting down"


# Health, status, metrics


@pytest.mark.parametrize("path", ["/readyz", "/healthz"])
async def test_a_proxy_is_ready_while_a_server_is_healthy(path: str) -> None:
    """Otherwise it gives the fault of each server."""
    async with fake_server(dumb) as well, fake_server(dumb) as ill:
        await ill.stop()
        async with proxy(well.url, ill.url) as on:
            ready = await on.http.get(path)
            assert (ready.status_code, ready.text) == (200, "ready\n")
            await on.proxy.front_end.drain()
            assert error(await on.http.get(path), 503) == "the server is shutting down"
        async with proxy(ill.url, healthy=False) as on:
            message = error(await on.http.get(path), 503)
            assert message.startswith(f"no server is healthy: {ill.url}: ")


async def test_metrics_are_by_model() -> None:
    """Counts, rows in calls, and slots. A model has its own from its first answer on."""
    async with merging(concurrency=3) as (on, _):
        await on.ask(rows_body(0)).reply()
        await on.replies([on.ask(rows_body(1, 2)), on.ask(rows_body(3)), on.ask(b"{")])
        await turns()
        page = await on.http.get("/metrics")

        assert page.headers["content-type"] == CONTENT_TYPE
        samples = {
            (sample.name, *sorted(sample.labels.items())): sample.value
            for family in text_string_to_metric_families(page.text)
            for sample in family.samples
        }
        model = ("api", "m")
        assert samples["uncork_requests_total", model, ("protocol", "http"), ("status", "200")] == 3
        assert samples["uncork_requests_total", model, ("protocol", "http"), ("status", "400")] == 1
        assert samples["uncork_batch_rows_sum", model] == 3
        assert samples["uncork_batch_rows_sum", ("api", "(unknown)")] == 1
        assert samples["uncork_workers", ("state", "idle")] == 3
        assert samples["uncork_workers", ("state", "busy")] == 0


@pytest.mark.parametrize(
    ("urls", "settings", "message"),
    [
        ([], {}, "at least one server is required"),
        (["localhost"], {}, "'localhost' is not a server address"),
        (["http://a"], {"max_batch_rows": 0}, "max_batch_rows must be positive, got 0"),
        (["http://a"], {"max_hold_s": -1}, "max_hold_s must be 0 or more, got -1"),
        (["http://a"], {"goal_s": 0}, "goal_s must be positive, got 0"),
        (["http://a"], {"policy": "magic"}, "unknown policy 'magic'"),
        (["http://a"], {"concurrency": 0}, "concurrency must be above 0, got 0"),
        (["http://a"], {"health_path": "ready"}, "health_path must begin with /, got 'ready'"),
    ],
)
async def test_wrong_settings_are_refused(urls: list[str], settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Proxy(urls, ProxySettings(**settings))
