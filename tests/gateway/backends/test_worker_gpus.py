"""The GPUs that a worker has reported, in the slot that pages and metrics show."""

import asyncio
from typing import cast

import pytest

from tests.gateway.fake_worker import service
from uncork_gateway.backends.worker_connection import Owner, WorkerConnection
from uncork_workers.wire.frames import encode_frame
from uncork_workers.wire.messages import Gpu, Gpus, Hello

pytestmark = pytest.mark.virtual_time

HELLO = Hello(index=3, service=service())


async def test_gpus_are_shown_for_half_a_minute() -> None:
    """An older reading says nothing about now: the worker has lost NVML, or runs a long batch."""
    worker = WorkerConnection(cast(Owner, None), standby=False)
    assert worker.slot(HELLO).gpus == {}
    for utilization in (0.1, 0.2):
        await asyncio.sleep(20)
        worker.data_received(encode_frame(Gpus({"0": Gpu(utilization=utilization)})))
        await asyncio.sleep(30)
        assert worker.slot(HELLO).gpus == {"0": Gpu(utilization=utilization)}

    await asyncio.sleep(0.1)
    assert worker.slot(HELLO).gpus == {}
