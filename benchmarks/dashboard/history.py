"""The cost of the dashboard's history: one sample of a gateway with real dispatcher, metrics and recorder."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from statistics import median
from typing import Any

from uncork_dispatcher import ApiRules, BatchResult, TaskRunner
from uncork_dispatcher.jobs import payloads_of
from uncork_dispatcher.requests.batch import Batch
from uncork_gateway.backends.slot import BackendSlot
from uncork_gateway.batching import Batching
from uncork_gateway.front_end import FrontEnd
from uncork_gateway.pages.dashboard.history import STEP_S, History
from uncork_gateway.pages.dashboard.sampler import Sampler
from uncork_gateway.pages.status.names import SERVICE
from uncork_gateway.pages.status.service_status import ServedApi
from uncork_gateway.settings import ServerSettings

_REQUESTS = 300
_SAMPLES = 200


class _Served:
    """A service with some APIs, and no worker processes."""

    any_ready = True
    not_ready_reason = ""
    not_ready = ""
    server = "benchmark"
    restarts = 0

    def __init__(self, apis: Sequence[str]) -> None:
        self._apis = apis

    def failure(self, api: str) -> None:
        return None

    def served_apis(self) -> dict[str, ServedApi]:
        return dict.fromkeys(self._apis, ServedApi())

    def slots(self) -> list[BackendSlot]:
        return []

    def scaling(self) -> None:
        return None

    def worker_states(self) -> list[str]:
        return []

    def serves(self, api: str) -> bool:
        return True

    def expire(self) -> None:
        pass


def share_of_processor(apis: int) -> float:
    """Return the share of a processor that the history of this many busy APIs takes."""
    return asyncio.run(_sample_s([f"api-{number}" for number in range(apis)])) / STEP_S


async def _sample_s(apis: Sequence[str]) -> float:
    """Return the median time of a sample."""

    async def execute(job: Batch[Any]) -> BatchResult[None]:
        return BatchResult([None] * len(payloads_of(job)))

    front = FrontEnd(ServerSettings())
    served = _Served(apis)
    batching = Batching(
        served,
        TaskRunner(execute),
        name="bench",
        batches=front.batches,
        bursts=front.listener.bursts,
        traces=None,
        names=SERVICE,
    )
    front.add(batching)
    batching.dispatcher.worker_ready(0)
    for name in apis:
        batching.dispatcher.set_api(ApiRules(name=name))
        await asyncio.gather(*(batching.dispatcher.call(name, None) for _ in range(_REQUESTS)))
        for _ in range(_REQUESTS):
            batching.metrics.api(name).answered(200, 0.02)
    sampler = Sampler(front.status_builder.figures, History())
    seconds = []
    for _ in range(_SAMPLES):
        began = time.perf_counter()
        sampler.sample()
        seconds.append(time.perf_counter() - began)
    front.close()
    return median(seconds)
