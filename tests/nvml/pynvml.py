"""Stands for NVML, in tests and in worker processes with this folder on their PYTHONPATH.

The JSON file named by FAKE_NVML has the GPUs, and the faults of functions: a class of exceptions, or "hang".
"""

from __future__ import annotations

import builtins
import json
import os
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

Handle = tuple[int, ...]
"""The number of a GPU and, for a MIG instance, its number there."""


class NVMLError(Exception): ...


class NVMLError_LibraryNotFound(NVMLError): ...


class NVMLError_DriverNotLoaded(NVMLError): ...


class NVMLError_NotSupported(NVMLError): ...


def nvmlInit() -> None:
    _state("nvmlInit")


def nvmlDeviceGetCount() -> int:
    return len(_state("nvmlDeviceGetCount")["gpus"])


def nvmlDeviceGetHandleByIndex(index: int) -> Handle:
    if _state("nvmlDeviceGetHandleByIndex")["gpus"][index] is None:
        raise NVMLError("no permission")
    return (index,)


def nvmlDeviceGetName(handle: Handle) -> str:
    return str(_device("nvmlDeviceGetName", handle).get("model", "H200"))


def nvmlDeviceGetUUID(handle: Handle) -> str:
    return str(_device("nvmlDeviceGetUUID", handle)["uuid"])


def nvmlDeviceGetMaxMigDeviceCount(handle: Handle) -> int:
    return len(_value("nvmlDeviceGetMaxMigDeviceCount", handle, "instances"))


def nvmlDeviceGetMigDeviceHandleByIndex(handle: Handle, index: int) -> Handle:
    if _value("nvmlDeviceGetMigDeviceHandleByIndex", handle, "instances")[index] is None:
        raise NVMLError("not found")
    return (*handle, index)


def nvmlDeviceGetGpuInstanceId(handle: Handle) -> int:
    _state("nvmlDeviceGetGpuInstanceId")
    return handle[1] + 7


def nvmlDeviceGetComputeInstanceId(handle: Handle) -> int:
    _state("nvmlDeviceGetComputeInstanceId")
    return 0


def nvmlDeviceGetMemoryInfo(handle: Handle) -> Any:
    used, total = _value("nvmlDeviceGetMemoryInfo", handle, "memory")
    return SimpleNamespace(used=used, total=total)


def nvmlDeviceGetUtilizationRates(handle: Handle) -> Any:
    return SimpleNamespace(gpu=_value("nvmlDeviceGetUtilizationRates", handle, "percent"))


def nvmlDeviceGetComputeRunningProcesses(handle: Handle) -> list[Any]:
    """Return another process, and this one if the file has its memory."""
    own = _value("nvmlDeviceGetComputeRunningProcesses", handle, "own")
    processes = [SimpleNamespace(pid=os.getpid(), usedGpuMemory=bytes_) for bytes_ in own]
    return [SimpleNamespace(pid=os.getppid(), usedGpuMemory=5), *processes]


def _state(function: str) -> dict[str, Any]:
    state: dict[str, Any] = json.loads(Path(os.environ["FAKE_NVML"]).read_text())
    fault = state.get("faults", {}).get(function)
    if fault == "hang":
        threading.Event().wait()
    if fault is not None:
        raise (globals().get(fault) or getattr(builtins, fault))(function)
    return state


def _device(function: str, handle: Handle) -> dict[str, Any]:
    device: dict[str, Any] = _state(function)["gpus"][handle[0]]
    for index in handle[1:]:
        device = device["instances"][index]
    return device


def _value(function: str, handle: Handle, name: str) -> Any:
    device = _device(function, handle)
    if name not in device:
        raise NVMLError_NotSupported(name)
    return device[name]
