"""Health checks of gRPC, and the streams of clients that watch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.gateway.fake_worker import json_api, service
from tests.gateway.grpc.fake_stream import FakeStream
from tests.gateway.grpc.services.services_stage import ServicesStage, services
from tests.gateway.running import turns
from uncork_gateway.errors import Unavailable
from uncork_gateway.grpc.interfaces import Call
from uncork_gateway.grpc.messages import SERVICES, message
from uncork_gateway.grpc.statuses import Code
from uncork_workers.wire.messages import Hello

CHECK, WATCH = "/grpc.health.v1.Health/Check", "/grpc.health.v1.Health/Watch"
Request: Any = message("grpc.health.v1.HealthCheckRequest")
Response: Any = message("grpc.health.v1.HealthCheckResponse")
NAMES = ["", "fake", "fake.echo", *SERVICES]


def check(on: ServicesStage, name: str) -> str:
    return status_in(on.ask(CHECK, service=name))


def status_in(response: Any) -> str:
    name: str = Response.ServingStatus.Name(response.status)
    return name


class Watch:
    """A client that watches a name."""

    def __init__(self, on: ServicesStage, name: str) -> None:
        self.call: Call
        self.stream: FakeStream
        self.call, self.stream = on.open(WATCH)
        self.call.message_received(Request(service=name).SerializeToString())
        self.call.end_received()

    async def next(self) -> str:
        return status_in(Response.FromString(await self.stream.next()))


# Check


async def test_checks_follow_the_workers(tmp_path: Path) -> None:
    async with services(tmp_path) as on:
        assert check(on, "") == check(on, "inference.GRPCInferenceService") == "NOT_SERVING"
        (await on.on.connect()).send(Hello(index=0, launch=1, service=service()))
        await on.on.service.events.described
        assert {check(on, name) for name in NAMES} == {"NOT_SERVING"}
        await on.on.worker(index=1)
        assert {check(on, name) for name in NAMES} == {"SERVING"}
        on.on.gateway.front_end.retire()
        assert {check(on, name) for name in NAMES} == {"NOT_SERVING"}


async def test_an_unknown_name_is_not_found_once_models_are_known(tmp_path: Path) -> None:
    """The error names no models, because the check needs no key."""
    async with services(tmp_path) as on:
        text = on.refusal(CHECK, Code.UNAVAILABLE, service="fake")
        assert text == "no model is known before a worker is ready"
        await on.on.worker()
        text = on.refusal(CHECK, Code.NOT_FOUND, service="fke")
        assert text.startswith("unknown service 'fke'; check the empty name")
        assert "fake" not in text


@pytest.mark.parametrize("length", [1024, 1025])
async def test_a_name_has_a_longest_length(tmp_path: Path, length: int) -> None:
    async with services(tmp_path) as on:
        await on.on.worker()
        code = Code.NOT_FOUND if length == 1024 else Code.INVALID_ARGUMENT
        on.refusal(CHECK, code, service="é" * length)
        watch = Watch(on, "é" * length)
        await turns()
        assert watch.stream.code is (None if length == 1024 else Code.INVALID_ARGUMENT)


# Watch


async def test_a_watch_hears_of_each_change(tmp_path: Path) -> None:
    """Once each, however many workers change."""
    async with services(tmp_path) as on:
        watch = Watch(on, "")
        assert await watch.next() == "NOT_SERVING"
        first = await on.on.worker(index=0)
        assert await watch.next() == "SERVING"
        second = await on.on.worker(index=1)
        first.close()
        second.close()
        assert await watch.next() == "NOT_SERVING"
        await on.on.worker(index=0)
        assert await watch.next() == "SERVING"
        on.on.gateway.front_end.retire()
        assert await watch.next() == "NOT_SERVING"
        assert len(watch.stream.messages) == 5


async def test_a_watch_of_an_unknown_name_waits_for_it(tmp_path: Path) -> None:
    """A reload may bring the model, and take it away."""
    async with services(tmp_path) as on:
        watch, other = Watch(on, "fake.other"), Watch(on, "fake.echo")
        assert await watch.next() == await other.next() == "SERVICE_UNKNOWN"
        await on.on.worker()
        assert await other.next() == "SERVING"
        on.on.service.events.serve(service(json_api("other")))
        assert await watch.next() == "SERVING"
        assert await other.next() == "SERVICE_UNKNOWN"


async def test_watches_end_with_the_server(tmp_path: Path) -> None:
    """The last status comes first, and new watches end at once."""
    async with services(tmp_path) as on:
        await on.on.worker()
        watch = Watch(on, "")
        assert await watch.next() == "SERVING"
        on.on.gateway.front_end.retire()
        assert await watch.next() == "NOT_SERVING"
        await on.on.gateway.front_end.drain()

        for one in (watch, Watch(on, "")):
            assert await one.stream.end() is Code.UNAVAILABLE
            assert one.stream.text == "the server is shutting down"
            assert one.stream.trailers == ((b"grpc-retry-pushback-ms", b"1000"),)


@pytest.mark.parametrize("how", ["cancelled", "reject", "drain"])
async def test_a_watch_that_has_ended_is_forgotten(tmp_path: Path, how: str) -> None:
    async with services(tmp_path) as on:
        watch = Watch(on, "")
        assert await watch.next() == "NOT_SERVING"
        match how:
            case "cancelled":
                watch.call.cancelled()
            case "reject":
                watch.call.reject(Unavailable("too slow", reason="draining", retry_after_s=1))
            case "drain":
                await on.on.gateway.front_end.drain()
        watch.call.message_received(Request().SerializeToString())
        watch.call.end_received()
        await on.on.worker()
        await turns()

        assert len(watch.stream.messages) == 1
        assert watch.stream.code is (None if how == "cancelled" else Code.UNAVAILABLE)


async def test_a_watch_takes_one_message(tmp_path: Path) -> None:
    async with services(tmp_path) as on:
        twice = Watch(on, "")
        twice.call.message_received(b"")
        assert await twice.stream.end() is Code.INTERNAL
        assert twice.stream.text == "Watch takes one message; the client sent another"
        call, stream = on.open(WATCH)
        call.end_received()
        assert await stream.end() is Code.INTERNAL
        assert stream.text == "Watch takes one message; the client sent none"
        call, stream = on.open(WATCH)
        call.message_received(b"\xff")
        assert await stream.end() is Code.INVALID_ARGUMENT
        assert stream.text == "the message of 1 byte is not a valid grpc.health.v1.HealthCheckRequest"
