"""The whole gateway: metrics and status have the GPUs of workers."""

from prometheus_client import generate_latest

from tests.gateway.gateway_stage import GatewayStage
from tests.loops import until
from uncork_workers.wire.messages import Gpu, Gpus

FULL = Gpu(memory_used_bytes=30, memory_total_bytes=100, worker_memory_bytes=24, utilization=0.87)


def exposed(on: GatewayStage) -> set[str]:
    text = generate_latest(on.gateway.front_end.exposition.registry).decode()
    return {line for line in text.splitlines() if line.startswith("uncork_gpu_")}


def utilization(worker: int, gpu: str, value: float, *, service: str = "fake") -> str:
    return f'uncork_gpu_utilization_ratio{{gpu="{gpu}",service="{service}",worker="{worker}"}} {value}'


async def test_each_value_that_is_known_is_a_gauge(on: GatewayStage) -> None:
    """Of each GPU of each worker; another worker without GPUs has none."""
    assert exposed(on) == set()
    worker, _ = await on.worker(), await on.worker(index=1)
    worker.send(Gpus({"0": FULL, "MIG-1": Gpu(utilization=0.0)}))
    await until(lambda: bool(exposed(on)))

    assert exposed(on) == {
        'uncork_gpu_memory_used_bytes{gpu="0",service="fake",worker="0"} 30.0',
        'uncork_gpu_memory_total_bytes{gpu="0",service="fake",worker="0"} 100.0',
        'uncork_gpu_worker_memory_bytes{gpu="0",service="fake",worker="0"} 24.0',
        utilization(0, "0", 0.87),
        utilization(0, "MIG-1", 0.0),
    }
    known, other = (await on.http.get("/status")).json()["workers"]
    assert other["gpus"] == []
    assert known["gpus"] == [
        {
            "name": "0",
            "memory_used_bytes": 30,
            "memory_total_bytes": 100,
            "worker_memory_bytes": 24,
            "utilization": 0.87,
        },
        {
            "name": "MIG-1",
            "memory_used_bytes": None,
            "memory_total_bytes": None,
            "worker_memory_bytes": None,
            "utilization": 0.0,
        },
    ]


async def test_the_successor_of_a_worker_has_its_gauges(on: GatewayStage) -> None:
    """While it prepares it has none; while both have the place, its own count, and no series comes twice."""
    old = await on.worker()
    new = await on.standby(2)
    new.send(Gpus({"0": Gpu(utilization=0.75)}))
    old.send(Gpus({"0": Gpu(utilization=0.25), "1": Gpu(utilization=0.25)}))
    await until(lambda: [len(slot.gpus) for slot in on.service.pool.slots()] == [2, 1])
    assert exposed(on) == {utilization(0, "0", 0.25), utilization(0, "1", 0.25)}

    asking = on.post("/echo", 1)
    batch, payload = await old.batch()
    on.service.take_over([2])
    assert len(on.service.pool.slots()) == 2
    assert exposed(on) == {utilization(0, "0", 0.75)}

    old.answer(batch, [payload])
    await asking
