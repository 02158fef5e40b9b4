"""A service's state, and its workers' GPUs, for the pages and the metrics."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from prometheus_client.core import GaugeMetricFamily, Metric

from uncork_gateway.backends.slot import BackendSlot
from uncork_gateway.backends.worker_connection import WorkerState
from uncork_gateway.backends.worker_pool import WorkerPool
from uncork_gateway.pages.status.api_status import ScalingNow, ServedApi
from uncork_gateway.pages.status.document import Failure
from uncork_gateway.pages.status.failures import Failures
from uncork_gateway.services.apis import Apis
from uncork_gateway.services.scaling import Scaling
from uncork_gateway.services.worker_events import WorkerEvents
from uncork_workers.wire.messages import Gpu


class ServiceView:
    """The state of a service that pages and metrics read. Call :meth:`show` before any of them does.

    Args:
        restarts: returns the number of worker restarts.
        startup_s: returns the seconds that a worker usually takes from launch to ready.

    Attributes:
        current_scaling: the autoscaler; None until there is one.
        is_in_force: False while a reload that adds the service waits for others; it counts as not ready then.
    """

    not_ready = "no worker is ready"
    _apis: Apis
    _pool: WorkerPool
    _events: WorkerEvents

    def __init__(
        self, failures: Failures, *, restarts: Callable[[], int], startup_s: Callable[[], float | None]
    ) -> None:
        self._failures = failures
        self._restarts = restarts
        self._startup_s = startup_s
        self.current_scaling: Scaling | None = None
        self.is_in_force = True

    def show(self, apis: Apis, pool: WorkerPool, events: WorkerEvents) -> None:
        """Use these parts of the service as the source of its state."""
        self._apis, self._pool, self._events = apis, pool, events

    @property
    def server(self) -> str | None:
        return None if self._apis.service is None else self._apis.service.name

    @property
    def restarts(self) -> int:
        return self._restarts()

    @property
    def any_ready(self) -> bool:
        """True if a worker is ready, or the next request starts one."""
        return self.is_in_force and (bool(self._pool.ready()) or self.is_from_zero)

    @property
    def is_from_zero(self) -> bool:
        """True from the stop of the last worker until the next one is ready, unless that has failed."""
        scaling = self.current_scaling
        return scaling is not None and scaling.is_from_zero and not self._events.failures.missing()

    @property
    def not_ready_reason(self) -> str:
        is_asleep = self.is_in_force and self.is_from_zero
        return "" if is_asleep else f"{self.not_ready}: {self._events.failures.text()}"

    def served_apis(self) -> dict[str, ServedApi]:
        return {
            name: ServedApi(api.route, weighs=api.settings.cost is not None, streams=api.streams)
            for name, api in self._apis.in_force.items()
        }

    def failure(self, api: str) -> Failure | None:
        return self._failures.last(api)

    def slots(self) -> list[BackendSlot]:
        """Return the connected workers, and the workers that have exited and are not ready again."""
        missing = self._events.failures.missing()
        slots = []
        for slot in self._pool.slots():
            died = missing.pop(slot.index, "")
            if slot.state == "starting" and not slot.fault:
                slot = replace(slot, fault=died or f"worker {slot.index} is being set up")
            slots.append(slot)
        slots += [BackendSlot(index, "lost", fault=fault) for index, fault in missing.items()]
        return sorted(slots, key=lambda slot: slot.index)

    def scaling(self) -> ScalingNow | None:
        scaling = self.current_scaling
        if scaling is None or scaling.least == scaling.most or scaling.decision is None:
            return None
        return ScalingNow(scaling.decision, scaling.least, scaling.most, self._startup_s())

    def worker_states(self) -> list[WorkerState]:
        return self._pool.states()

    def serves(self, api: str) -> bool:
        return api in self._apis.in_force

    def expire(self) -> None:
        self._apis.forget_removed()


def gpu_gauges(slots: Sequence[BackendSlot]) -> Iterator[Metric]:
    """Yield what workers report of their GPUs. ``slots`` are the workers, the newest last."""
    # While a worker takes over, two have one place.
    workers = {slot.index: slot.gpus for slot in slots if slot.gpus and slot.state != "starting"}
    for name, (text, read) in _READINGS.items():
        gauge = GaugeMetricFamily(name, text, labels=["worker", "gpu"])
        for worker, gpus in sorted(workers.items()):
            for label, gpu in gpus.items():
                value = read(gpu)
                if value is not None:
                    gauge.add_metric([str(worker), label], value)
        yield gauge


_READINGS: dict[str, tuple[str, Callable[[Gpu], float | None]]] = {
    "uncork_gpu_memory_used_bytes": (
        "Memory of a worker's GPU that any process uses.",
        lambda gpu: gpu.memory_used_bytes,
    ),
    "uncork_gpu_memory_total_bytes": (
        "Memory of a worker's GPU.",
        lambda gpu: gpu.memory_total_bytes,
    ),
    "uncork_gpu_worker_memory_bytes": (
        "Memory of a worker's GPU that the worker uses.",
        lambda gpu: gpu.worker_memory_bytes,
    ),
    "uncork_gpu_utilization_ratio": (
        "Share of about the last second in which a worker's GPU was busy.",
        lambda gpu: gpu.utilization,
    ),
}
