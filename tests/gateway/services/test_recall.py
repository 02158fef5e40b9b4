"""What an earlier run has learned is recalled before the first batch, for the same model alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.gateway.fake_worker import FakeWorker, json_api, service
from tests.gateway.gateway_stage import GatewayStage, gateway
from tests.gateway.running import turns
from uncork_workers.wire.messages import Hello, Ready
from uncork_workers.wire.schema import ApiSettings

Learned = Mapping[str, Sequence[tuple[float, float]]]
LEARNED: Learned = {"echo": [(1.0, 0.001), (50.0, 0.01)], "removed": [(1.0, 0.001)]}


async def worker(
    on: GatewayStage,
    *,
    code: str = "1",
    surroundings: str = "cpu",
    settings: ApiSettings | None = None,
    launch: int = 1,
) -> FakeWorker:
    one = await on.connect()
    described = service(json_api(settings=settings))
    one.send(Hello(index=0, launch=launch, service=described, code=code))
    one.send(Ready(surroundings=surroundings, profile={"echo": [(1.0, 0.001), (2.0, 0.00118)]}))
    await on.service.batching.ready.wait()
    await turns()
    return one


def recalling(asked: list[str], learned: Learned) -> Callable[[str], Learned]:
    def recall(model: str) -> Learned:
        asked.append(model)
        return learned

    return recall


async def test_the_first_worker_recalls_what_was_learned_of_its_model(on: GatewayStage) -> None:
    """Its warm-up confirms that; APIs that are gone are left out."""
    asked: list[str] = []
    on.service.events.recall = recalling(asked, LEARNED)
    await worker(on)
    await worker(on, launch=2)

    assert asked == [on.service.events.model]
    [stats] = on.service.batching.dispatcher.stats()
    assert stats.known_rows == (1.0, 50.0)
    assert stats.estimate.earned_rows == 100


async def test_what_is_learned_is_given_by_api(on: GatewayStage) -> None:
    """Nothing of APIs about which too little is known."""
    assert on.service.learned() == {}
    one = await on.worker()
    assert on.service.learned() == {}
    for _ in range(5):
        await on.echo(one, "/echo", 1)

    assert on.service.learned().keys() == {"echo"}
    [(rows, seconds)] = on.service.learned()["echo"]
    assert (rows, round(seconds, 6)) == (1, 0.001)


async def test_a_model_is_its_code_device_and_sizes(tmp_path: Path) -> None:
    """Its goal is not part of it: batches take as long whatever it is."""
    models = []
    given: list[dict[str, Any]] = [
        {},
        {},
        {"settings": ApiSettings(mb_max_latency=5.0)},
        {"code": "2"},
        {"surroundings": "gpu"},
        {"settings": ApiSettings(allowed_batch_sizes=(4, 8))},
    ]
    for number, values in enumerate(given):
        folder = tmp_path / str(number)
        folder.mkdir()
        async with gateway(folder) as on:
            await worker(on, **values)
            models.append(on.service.events.model)

    assert models[0] == models[1] == models[2]
    assert len(set(models)) == 4


async def test_new_code_is_another_model(on: GatewayStage) -> None:
    """From its first worker on; what was learned stays, since batches correct it as they run."""
    asked: list[str] = []
    on.service.events.recall = recalling(asked, {})
    await worker(on)
    before = on.service.events.model
    await worker(on, code="2", launch=2)

    assert on.service.events.model != before
    assert len(asked) == 1
