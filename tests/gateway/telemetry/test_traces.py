"""Spans of requests and batches, and their links."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from tests.gateway.fake_worker import json_api, service
from tests.gateway.gateway_stage import GatewayStage, gateway
from tests.gateway.grpc.call_stage import STREAM_INFER, calls, numbers
from tests.gateway.grpc.fake_stream import FakeConnection, FakeObservers
from tests.gateway.proxy_stage import V1, merging, rows_body
from tests.gateway.running import turns
from uncork_gateway.codecs import Marshalled
from uncork_gateway.telemetry.traces import Traces
from uncork_workers.wire.messages import Batch
from uncork_workers.wire.schema import ApiSettings

CLIENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
UNSAMPLED = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203332-00"


class Seen:
    """The exported spans."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        provider = TracerProvider(shutdown_on_exit=False)
        provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.traces = Traces(provider.get_tracer("test"))

    def named(self, name: str) -> list[ReadableSpan]:
        return [span for span in self._exporter.get_finished_spans() if span.name == name]


async def ask_two(on: GatewayStage, *, second: str, status: int = 200) -> tuple[Batch, list[int]]:
    """Run a batch of two requests; only the second has a client's trace."""
    worker = await on.worker()
    first = on.post("/echo", 0)
    running, _ = await worker.batch()
    asking = [
        asyncio.ensure_future(on.http.post("/echo", json=1)),
        asyncio.ensure_future(
            on.http.post("/echo", json=2, headers={"traceparent": second, "tracestate": "a=b"})
        ),
    ]
    await turns(50)
    worker.answer(running, [b"0"])
    batch, _ = await worker.batch()
    worker.answer(batch, [b"1", b"2"])
    await first
    return batch, [(await one).status_code for one in asking]


async def test_a_batch_is_linked_to_all_its_requests(tmp_path: Path) -> None:
    """Links go both ways; the batch and its worker are in the first request's trace."""
    seen = Seen()

    async with gateway(tmp_path, traces=seen.traces) as on:
        frame, statuses = await ask_two(on, second=CLIENT)
        assert statuses == [200, 200]

    requests = seen.named("POST /echo")[1:]
    [batch] = seen.named("batch echo")[1:]
    contexts = {span.context.span_id for span in requests if span.context}
    assert batch.context is not None
    assert batch.parent is not None
    assert {link.context.span_id for link in batch.links} == contexts
    assert [link.context.span_id for span in requests for link in span.links] == [batch.context.span_id] * 2
    assert batch.parent.span_id in contexts
    assert frame.trace is not None
    assert frame.trace[0].startswith(f"00-{batch.context.trace_id:032x}-{batch.context.span_id:016x}-")

    assert (batch.kind, requests[0].kind) == (SpanKind.CLIENT, SpanKind.SERVER)
    told = dict(batch.attributes or {})
    assert (told["uncork.api"], told["uncork.rows"], told["uncork.requests"]) == ("echo", 2, 2)
    assert (told["uncork.outcome"], told["uncork.batch_id"]) == ("worked", frame.id)
    assert told["uncork.worker"] == 0  # its place, which /status and logs name, not the number of its launch
    asked = dict(requests[0].attributes or {})
    assert (asked["http.response.status_code"], asked["http.route"]) == (200, "/echo")
    assert (asked["uncork.rows"], asked["uncork.batch_id"]) == (1, frame.id)


async def test_each_service_ends_the_spans_of_its_own_batches(tmp_path: Path) -> None:
    """Batches of two services that run at one time have one number."""
    seen = Seen()

    async with gateway(tmp_path, name="a", traces=seen.traces) as on:
        other = await on.add("b", own_routes=False, traces=seen.traces)
        workers = [await on.worker(), await on.worker(of=other)]
        asking = [on.post("/a/echo", 1), on.post("/b/echo", 2)]
        running = [await worker.batch() for worker in workers]
        assert len({batch.batch for batch, _ in running}) == 1
        for worker, (batch, payload), worked in zip(workers, running, (True, False), strict=True):
            worker.answer(batch, [payload], statuses=[200 if worked else 500], worked=worked)
        assert [(await one).status_code for one in asking] == [200, 500]

    told = [dict(span.attributes or {}) for span in seen.named("batch echo")]
    outcomes = {one["uncork.batch_id"]: one["uncork.outcome"] for one in told}
    assert outcomes == {running[0][0].id: "worked", running[1][0].id: "failed"}


async def test_copies_of_requests_have_no_span(tmp_path: Path) -> None:
    """A batch of a shadow may have them only, or with requests that have one."""
    seen = Seen()

    async with gateway(tmp_path, traces=seen.traces) as on:
        worker = await on.worker()
        dispatcher, contract = on.service.batching.dispatcher, json_api().contract
        copied = Marshalled(b"1", 1, contract=contract)
        first = on.post("/echo", 0)
        running, _ = await worker.batch()
        copy = asyncio.ensure_future(dispatcher.call("echo", copied, key=contract))
        traced = on.post("/echo", 2)
        await turns(50)
        worker.answer(running, [b"0"])
        mixed, _ = await worker.batch()
        worker.answer(mixed, [b"1", b"2"])
        await asyncio.gather(first, copy, traced)
        copy = asyncio.ensure_future(dispatcher.call("echo", copied, key=contract))
        alone, _ = await worker.batch()
        worker.answer(alone, [b"1"])
        await copy

    _, shared, own = seen.named("batch echo")
    assert [len(span.links) for span in (shared, own)] == [1, 0]
    assert shared.parent is not None
    assert own.parent is None


async def test_a_request_is_in_the_trace_of_its_client(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The access log names its span."""
    seen = Seen()

    caplog.set_level(logging.INFO)
    async with gateway(tmp_path, traces=seen.traces, access_log=True) as on:
        await ask_two(on, second=CLIENT)

    [told] = [span for span in seen.named("POST /echo") if span.parent is not None]
    assert told.context is not None
    assert told.parent is not None
    assert f"{told.context.trace_id:032x}" == CLIENT.split("-")[1]
    logged = [vars(record) for record in caplog.records if record.name == "uncork.access"]
    assert {(one["trace_id"], one["span_id"]) for one in logged} >= {
        (CLIENT.split("-")[1], f"{told.context.span_id:016x}")
    }
    assert f"{told.parent.span_id:016x}" == CLIENT.split("-")[2]
    assert told.context.trace_state.get("a") == "b"


def test_a_tracestate_may_come_in_several_lines() -> None:
    trace = [(b"traceparent", CLIENT.encode()), (b"tracestate", b"a=1,b=2"), (b"tracestate", b"c=3")]
    span = Seen().traces.begin_request(b"/echo", trace).span
    assert span.get_span_context().trace_state == {"a": "1", "b": "2", "c": "3"}


async def test_a_request_that_joins_another_says_so(tmp_path: Path) -> None:
    """It has the batch of the other, whose client may leave, and end its span, before the batch begins."""
    seen = Seen()
    serves = service(replace(json_api(settings=ApiSettings(policy="fixed:0")), coalesce=True))

    async with gateway(tmp_path, traces=seen.traces) as on:
        worker = await on.worker(serves=serves)
        busy = on.post("/echo", 0)
        running, _ = await worker.batch()
        leaving, joining = on.post("/echo", 1), on.post("/echo", 1)
        await turns(50)
        leaving.cancel()
        await turns(50)
        worker.answer(running, [b"0"])
        batch, _ = await worker.batch()
        worker.answer(batch, [b"1"])
        await asyncio.gather(busy, joining)

    _, left, joined = seen.named("POST /echo")
    [*_, of_batch] = seen.named("batch echo")
    assert "uncork.coalesced" not in (left.attributes or {})
    told = dict(joined.attributes or {})
    assert (told["uncork.coalesced"], told["uncork.batch_id"]) == (True, batch.id)
    assert (of_batch.links, of_batch.parent) == ((), None)


async def test_a_client_that_is_not_sampled_has_no_span(tmp_path: Path) -> None:
    seen = Seen()

    async with gateway(tmp_path, traces=seen.traces) as on:
        await ask_two(on, second=UNSAMPLED)

    assert len(seen.named("POST /echo")) == 2
    assert len(seen.named("batch echo")) == 2


async def test_a_batch_that_went_with_its_worker_is_an_error(tmp_path: Path) -> None:
    """The repeated batches and the request are errors too."""
    seen = Seen()

    async with gateway(tmp_path, traces=seen.traces) as on:
        workers = [await on.worker(index=index) for index in (0, 1, 2)]
        asking = on.post("/echo", 0)
        for worker in workers:
            await worker.batch()
            worker.close()
        assert (await asking).status_code == 502

    [request] = seen.named("POST /echo")
    batches = seen.named("batch echo")
    assert [dict(span.attributes or {})["uncork.outcome"] for span in batches] == ["lost"] * 3
    assert {span.status.status_code for span in (*batches, request)} == {StatusCode.ERROR}


async def test_nobody_is_traced_by_default(on: GatewayStage) -> None:
    batch, _ = await ask_two(on, second=CLIENT)
    assert batch.trace is None


async def test_a_server_behind_a_proxy_is_told_of_the_batch() -> None:
    """The call carries the trace of the batch, which continues that of the sampled request."""
    seen = Seen()

    async with merging(traces=seen.traces) as (on, model):
        await on.ask(rows_body(0)).reply()
        callers = [on.ask(rows_body(1), V1, (b"traceparent", CLIENT.encode())), on.ask(rows_body(2, 3))]
        assert {reply.status for reply in await on.replies(callers)} == {200}
        [_, call] = model.calls
        result = call.header(b"traceparent") or b""
    told = result.decode()

    [batch] = seen.named("batch m")
    assert batch.context is not None
    assert told.split("-")[1:3] == [CLIENT.split("-")[1], f"{batch.context.span_id:016x}"]
    assert len(batch.links) == 2
    rows = [dict(span.attributes or {})["uncork.rows"] for span in seen.named(f"POST {V1.decode()}")]
    assert set(rows) == {1, 2}


async def test_calls_over_grpc_have_spans_with_their_method_and_code(tmp_path: Path) -> None:
    """Each message of a stream has its own, in the trace of the call."""
    seen = Seen()
    connection = FakeConnection(observers=FakeObservers(traces=seen.traces))

    async with calls(tmp_path, traces=seen.traces) as stage:
        _, stream = stage.ask(numbers(1), connection=connection)
        await stage.answer(b"1")
        await stream.end()
        stage.ask(numbers(1, model="unknown"), connection=connection)
        stage.ask(
            *(numbers(1, model="unknown"),) * 2,
            path=STREAM_INFER,
            connection=connection,
            metadata=((b"traceparent", CLIENT.encode()),),
        )

    answered, unknown = seen.named("POST /inference.GRPCInferenceService/ModelInfer")
    told = dict(answered.attributes or {})
    assert (told["rpc.system"], told["rpc.service"]) == ("grpc", "inference.GRPCInferenceService")
    assert (told["rpc.method"], told["rpc.grpc.status_code"], told["uncork.rows"]) == ("ModelInfer", 0, 1)
    told = dict(unknown.attributes or {})
    assert (told["rpc.grpc.status_code"], told["http.response.status_code"]) == (5, 404)
    of_stream = seen.named("POST /inference.GRPCInferenceService/ModelStreamInfer")
    assert [f"{span.context.trace_id:032x}" for span in of_stream if span.context] == [CLIENT[3:35]] * 2


async def test_buckets_name_a_request_in_openmetrics(tmp_path: Path) -> None:
    """Only sampled requests, and only for scrapers that ask for the format."""
    seen = Seen()
    async with gateway(tmp_path, traces=seen.traces) as on:
        await ask_two(on, second=UNSAMPLED)
        scrape = {"accept": "application/openmetrics-text;version=1.0.0;q=0.8,text/plain;q=0.5"}
        reply, plain = await on.http.get("/metrics", headers=scrape), await on.http.get("/metrics")

    assert reply.headers["content-type"].startswith("application/openmetrics-text")
    parse: Any = text_string_to_metric_families  # which has no type hints
    families = {family.name: family for family in parse(reply.text)}
    examples = [one.exemplar for one in families["uncork_request_duration_seconds"].samples if one.exemplar]
    sampled = {
        f"{span.context.trace_id:032x}"
        for span in seen.named("POST /echo")
        if span.context and span.context.trace_flags.sampled
    }
    assert {one.labels["trace_id"] for one in examples} <= sampled
    assert examples
    assert plain.headers["content-type"].startswith("text/plain")
    assert "trace_id" not in plain.text
