"""The gauges of the GPUs that the workers of a service use."""

from collections.abc import Callable, Iterable, Sequence

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from uncork_gateway.backends.slot import BackendSlot
from uncork_workers.wire.messages import Gpu


class GpuGauges(Collector):
    """Collects what workers report of their GPUs. ``slots`` returns the workers, the newest last."""

    def __init__(self, slots: Callable[[], Sequence[BackendSlot]]) -> None:
        self._slots = slots

    def collect(self) -> Iterable[Metric]:
        # While a worker takes over, two have one place.
        workers = {slot.index: slot.gpus for slot in self._slots() if slot.gpus and slot.state != "starting"}
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
