"""The use of the GPUs that a worker sees, as NVIDIA's management library (NVML) reports it.

Nothing here creates a context on a GPU, which would take up memory there.
"""

import logging
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple, TypeVar

import msgspec

from uncork_workers.wire.messages import MOST_GPUS, Bytes, Gpu, Gpus, Share

log = logging.getLogger("uncork.worker")

_INTERVAL_S = 2.0

T = TypeVar("T")


class _Device(NamedTuple):
    """A GPU, or a MIG instance of one.

    Attributes:
        label: its name in metrics.
        names: its names in ``CUDA_VISIBLE_DEVICES``, in full.
    """

    label: str
    names: tuple[str, ...]
    handle: Any

    def is_named(self, start: str) -> bool:
        return any(name.startswith(start) for name in self.names)


class GpuUsage:
    """Reads the GPUs in a thread of its own, because a call of NVML may hang.

    Attributes:
        latest: the last reading; None before the first, and without NVML.
    """

    def __init__(self, pause: Callable[[float], object] = time.sleep) -> None:
        self.latest: Gpus | None = None
        self._pause = pause
        self._is_started = False

    def start(self) -> None:
        """Start reading, once, if the package of the extra ``gpu`` is installed.

        Call it after the service's setup, which may set ``CUDA_VISIBLE_DEVICES``.
        """
        if self._is_started:
            return
        self._is_started = True
        try:
            import pynvml  # here, because it takes 60 ms, which would delay the first batches
        except ModuleNotFoundError:
            return
        except Exception as error:
            _log_end(error)
            return
        threading.Thread(target=self._run, args=(pynvml,), name="uncork gpus", daemon=True).start()

    def _run(self, nvml: Any) -> None:
        try:
            self._read(nvml)
        except Exception as error:
            _log_end(error)

    def _read(self, nvml: Any) -> None:
        try:
            nvml.nvmlInit()
        except (nvml.NVMLError_LibraryNotFound, nvml.NVMLError_DriverNotLoaded) as error:
            log.debug("metrics of GPUs are off: %s", error)
            return
        devices = visible_devices(nvml, os.environ)
        while devices:
            self.latest = read_gpus(nvml, devices)
            self._pause(_INTERVAL_S)


def _log_end(error: Exception) -> None:
    log.warning("metrics of GPUs are off until this worker restarts: %s: %s", type(error).__name__, error)


def visible_devices(nvml: Any, environment: Mapping[str, str]) -> list[_Device]:
    """Return the devices that CUDA lets a process with this environment use.

    Raises:
        ValueError: if CUDA's numbers of GPUs are unknown.
    """
    gpus = list(_gpus(nvml))
    visible = environment.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        return gpus
    found: dict[str, _Device] = {}
    for name in map(str.strip, visible.split(",")):
        if name.isdecimal():
            _check_order(nvml, gpus, environment)
            matching = gpus[int(name) : int(name) + 1]
        else:
            matching = [one for one in _kind(nvml, gpus, name) if one.is_named(name)]
        if len(matching) != 1:  # like CUDA, which ignores this name and all names after it
            break
        found[matching[0].label] = matching[0]
    return list(found.values())


def _kind(nvml: Any, gpus: list[_Device], name: str) -> list[_Device]:
    """Return the devices of the kind that a name without numbers is for."""
    if name.startswith("MIG-"):
        return [instance for gpu in gpus for instance in _instances(nvml, gpu)]
    return gpus if name.startswith("GPU-") else []


def _gpus(nvml: Any) -> Iterator[_Device]:
    """Yield the GPUs that this process may use, in the order of NVML, that of the PCI bus."""
    for index in range(nvml.nvmlDeviceGetCount()):
        try:
            handle = nvml.nvmlDeviceGetHandleByIndex(index)
            yield _Device(str(index), (nvml.nvmlDeviceGetUUID(handle),), handle)
        except nvml.NVMLError:
            continue


def _instances(nvml: Any, gpu: _Device) -> Iterator[_Device]:
    """Yield the MIG instances of a GPU; CUDA also takes their older names."""
    for index in range(_value(nvml, int, lambda: nvml.nvmlDeviceGetMaxMigDeviceCount(gpu.handle)) or 0):
        try:
            handle = nvml.nvmlDeviceGetMigDeviceHandleByIndex(gpu.handle, index)
            uuid = nvml.nvmlDeviceGetUUID(handle)
            numbers = (
                f"{nvml.nvmlDeviceGetGpuInstanceId(handle)}/{nvml.nvmlDeviceGetComputeInstanceId(handle)}"
            )
        except nvml.NVMLError:
            continue
        yield _Device(uuid, (uuid, f"MIG-{gpu.names[0]}/{numbers}"), handle)


def _check_order(nvml: Any, gpus: list[_Device], environment: Mapping[str, str]) -> None:
    """Refuse to guess which GPU a number stands for: by default, CUDA lists the fastest model first."""
    if environment.get("CUDA_DEVICE_ORDER") == "PCI_BUS_ID":
        return
    models = {nvml.nvmlDeviceGetName(gpu.handle) for gpu in gpus}
    if len(models) > 1:
        raise ValueError(
            f"CUDA may number the GPUs of this machine ({', '.join(sorted(models))}) in another order than "
            "NVML; set CUDA_DEVICE_ORDER=PCI_BUS_ID, or name GPUs by UUID"
        )


def read_gpus(nvml: Any, devices: list[_Device]) -> Gpus:
    """Read the use of some devices, without values that NVML does not report."""
    return Gpus({device.label: _read_gpu(nvml, device.handle) for device in devices[:MOST_GPUS]})


def _read_gpu(nvml: Any, handle: Any) -> Gpu:
    return Gpu(
        memory_used_bytes=_value(nvml, Bytes, lambda: nvml.nvmlDeviceGetMemoryInfo(handle).used),
        memory_total_bytes=_value(nvml, Bytes, lambda: nvml.nvmlDeviceGetMemoryInfo(handle).total),
        worker_memory_bytes=_value(nvml, Bytes, lambda: _own_memory(nvml, handle)),
        utilization=_value(nvml, Share, lambda: nvml.nvmlDeviceGetUtilizationRates(handle).gpu / 100),
    )


def _own_memory(nvml: Any, handle: Any) -> int | None:
    """Return the bytes that this process uses; None if NVML does not list it, as in some containers."""
    processes = nvml.nvmlDeviceGetComputeRunningProcesses(handle)
    own = [one.usedGpuMemory for one in processes if one.pid == os.getpid() and one.usedGpuMemory is not None]
    return sum(own) if own else None


def _value(nvml: Any, kind: Any, read: Callable[[], T]) -> T | None:
    """Return a value; None if the device does not support it, or if no message could carry it."""
    try:
        value = read()
        return None if value is None else msgspec.convert(value, kind)
    except (nvml.NVMLError, msgspec.ValidationError):
        return None
