"""The whole gateway, with APIs that stream."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec

from tests.gateway.fake_worker import FakeWorker, json_api, service
from tests.gateway.gateway_stage import GatewayStage, gateway
from uncork_workers.wire.messages import AnswerHead, Piece
from uncork_workers.wire.schema import ApiDescription, ApiSettings

HEAD = AnswerHead(status=200, content_type="text/plain")


def streaming_api(name: str = "tell") -> ApiDescription:
    return msgspec.structs.replace(json_api(name, ApiSettings(policy="none")), streams=True)


async def streamed(on: GatewayStage, worker: FakeWorker, *pieces: bytes, whole: bool = True) -> bytes:
    """Return what a client receives while a worker streams."""
    asking = on.post("/tell", 1)
    batch, _ = await worker.batch()
    head: AnswerHead | None = HEAD
    for piece in pieces:
        worker.send(Piece(batch.batch, head), [piece])
        head = None
    if whole:
        worker.answer(batch, [b""], chunks=[])
    else:
        worker.close()
    return (await asking).content


async def test_pieces_go_through(on: GatewayStage) -> None:
    worker = await on.worker(serves=service(streaming_api()))

    said: asyncio.Queue[str] = asyncio.Queue()

    async def read() -> None:
        async with on.http.stream("POST", "/tell", json=1) as reply:
            async for piece in reply.aiter_text():
                said.put_nowait(piece)

    reading = asyncio.create_task(read())
    batch, _ = await worker.batch()
    assert (batch.idempotent, batch.rows) == (False, [1])
    worker.send(Piece(batch.batch, HEAD), [b"one "])
    assert await said.get() == "one "
    worker.send(Piece(batch.batch), [b"two"])
    assert await said.get() == "two"
    worker.answer(batch, [b""], chunks=[])

    await reading
    assert said.empty()
    assert await streamed(on, worker, b"again") == b"again"


async def test_overrides_cannot_batch_what_is_streamed(tmp_path: Path) -> None:
    """Nor make it idempotent; other APIs follow them."""
    serves = service(streaming_api(), json_api())

    async with gateway(tmp_path, overrides={"policy": "fixed:50", "idempotent": True}) as on:
        worker = await on.worker(serves=serves)
        tell, echo = (await on.service.events.described).apis
        asking = [on.post("/tell", value) for value in range(2)]
        for value in range(2):
            batch, payload = await worker.batch()
            assert (payload, batch.idempotent) == (b"%d" % value, False)
            worker.answer(batch, [b""], chunks=[])
        await asyncio.gather(*asking)

        assert tell.settings == ApiSettings(policy="none", idempotent=False)
        assert echo.settings == ApiSettings(policy="fixed:50")


async def test_what_streams_is_no_model(on: GatewayStage) -> None:
    await on.worker(serves=service(streaming_api("predict"), json_api()))

    assert (await on.http.get("/v1/models")).json()["models"] == ["fake", "fake.echo"]
    assert (await on.http.post("/v2/models/fake.predict/infer", json={})).status_code == 404
    document = (await on.http.get("/openapi.json")).json()
    answer = document["paths"]["/predict"]["post"]["responses"]["200"]
    assert answer["content"] == {"*/*": {}}
