"""What a worker reads of its GPUs, from a library that stands for NVML."""

from __future__ import annotations

import importlib
import json
import logging
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.loops import HANG_S
from tests.nvml import pynvml
from uncork_workers.process.gpu_usage import GpuUsage, read_gpus, visible_devices
from uncork_workers.wire.frames import FrameDecoder, encode_frame
from uncork_workers.wire.messages import MOST_GPUS, Gpu, Gpus

FIRST, SECOND, THIRD = "GPU-8932f937-d72c", "GPU-1234f937-d72c", "GPU-12ff0000-0000"
INSTANCES = ["MIG-aaaa", "MIG-aabb"]
FULL: dict[str, Any] = {"memory": [30, 100], "percent": 87, "own": [20, 4]}
Tell = Callable[..., None]


@pytest.fixture
def tell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tell:
    """Set what NVML knows: the GPUs, and the faults of functions."""
    file = tmp_path / "nvml.json"
    monkeypatch.setenv("FAKE_NVML", str(file))
    monkeypatch.setitem(sys.modules, "pynvml", pynvml)

    def write(*gpus: dict[str, Any] | None, **faults: str) -> None:
        file.write_text(json.dumps({"gpus": gpus, "faults": faults}))

    return write


def gpu(uuid: str = FIRST, **values: Any) -> dict[str, Any]:
    return {"uuid": uuid, **values}


def labels(**environment: str) -> list[str]:
    return [device.label for device in visible_devices(pynvml, environment)]


@pytest.mark.parametrize(
    ("visible", "seen"),
    [
        ("0", ["0"]),
        ("2", ["2"]),
        (" 2 , 0 ", ["2", "0"]),
        ("0,0", ["0"]),
        ("3", []),
        ("0,3,1", ["0"]),
        ("", []),
        ("-1", []),
        ("1,-1,0", ["1"]),
        ("all", []),
        ("0,,1", ["0"]),
        (FIRST, ["0"]),
        ("GPU-89", ["0"]),
        ("GPU-12", []),  # two begin so
        ("GPU-1234", ["1"]),
        ("GPU-99", []),
        ("8932", []),
        (f"{THIRD},0", ["2", "0"]),
        ("MIG-aaaa", ["MIG-aaaa"]),
        ("MIG-aab", ["MIG-aabb"]),
        ("MIG-aa", []),
        ("MIG-aaaa,MIG-aabb", INSTANCES),
        (f"MIG-{SECOND}/9/0", ["MIG-aabb"]),
        (f"MIG-{FIRST}/9/0", []),
        ("MIG-", []),
    ],
)
def test_a_worker_reads_what_cuda_lets_it_use(tell: Tell, visible: str, seen: list[str]) -> None:
    """CUDA ignores the first name that is not one GPU, and what follows it."""
    instances = [{"uuid": INSTANCES[0]}, None, {"uuid": INSTANCES[1]}]
    tell(gpu(), gpu(SECOND, instances=instances), gpu(THIRD))

    assert labels(CUDA_VISIBLE_DEVICES=visible) == seen


def test_without_an_assignment_all_gpus_are_read(tell: Tell) -> None:
    tell(gpu(), gpu(SECOND))
    assert labels() == ["0", "1"]
    tell()
    assert labels() == []


def test_a_gpu_that_the_process_may_not_use_has_no_number_in_cuda(tell: Tell) -> None:
    """Its label is still that of nvidia-smi."""
    tell(None, gpu(), gpu(SECOND))

    assert labels() == ["1", "2"]
    assert labels(CUDA_VISIBLE_DEVICES="1") == ["2"]


def test_numbers_of_unlike_gpus_are_not_guessed(tell: Tell) -> None:
    """CUDA lists the fastest first, which may be another one than NVML's first."""
    tell(gpu(model="T4"), gpu(SECOND, model="H200"))

    with pytest.raises(ValueError, match=r"\(H200, T4\) in another order.* set CUDA_DEVICE_ORDER=PCI_BUS_ID"):
        labels(CUDA_VISIBLE_DEVICES="0", CUDA_DEVICE_ORDER="FASTEST_FIRST")
    with pytest.raises(ValueError, match="in another order"):
        labels(CUDA_VISIBLE_DEVICES="0")
    assert labels(CUDA_VISIBLE_DEVICES="0", CUDA_DEVICE_ORDER="PCI_BUS_ID") == ["0"]
    assert labels(CUDA_VISIBLE_DEVICES=SECOND) == ["1"]
    assert labels(CUDA_VISIBLE_DEVICES="") == []
    assert labels() == ["0", "1"]


def read(**environment: str) -> dict[str, Gpu]:
    return read_gpus(pynvml, visible_devices(pynvml, environment)).gpus


def test_a_reading_has_the_values_of_each_gpu(tell: Tell) -> None:
    """The worker's own memory may be in several parts; other processes do not count."""
    tell(gpu(**FULL), gpu(SECOND, memory=[5, 90], percent=0, own=[]))

    assert read() == {
        "0": Gpu(memory_used_bytes=30, memory_total_bytes=100, worker_memory_bytes=24, utilization=0.87),
        "1": Gpu(memory_used_bytes=5, memory_total_bytes=90, utilization=0),
    }


@pytest.mark.parametrize(
    ("function", "unknown"),
    [
        ("nvmlDeviceGetMemoryInfo", {"memory_used_bytes", "memory_total_bytes"}),
        ("nvmlDeviceGetUtilizationRates", {"utilization"}),
        ("nvmlDeviceGetComputeRunningProcesses", {"worker_memory_bytes"}),
    ],
)
def test_a_value_that_cannot_be_read_is_left_out(tell: Tell, function: str, unknown: set[str]) -> None:
    tell(gpu(**FULL), **{function: "NVMLError_NotSupported"})

    [only] = read().values()

    assert {name for name in Gpu.__struct_fields__ if getattr(only, name) is None} == unknown


@pytest.mark.parametrize(
    "wrong",
    [
        {"memory": [2**64 - 1, -1], "percent": 101, "own": [2**64 - 1]},
        {"memory": ["1", 0.5], "percent": -1, "own": [None]},
        {"memory": [None, None], "own": []},
    ],
)
def test_no_value_is_sent_that_the_gateway_would_refuse(tell: Tell, wrong: dict[str, Any]) -> None:
    tell(gpu(**wrong))

    assert read() == {"0": Gpu()}


def test_a_reading_of_many_gpus_fits_into_a_message(tell: Tell) -> None:
    tell(*[gpu(f"GPU-{number}", **FULL) for number in range(MOST_GPUS + 1)])
    [frame] = FrameDecoder().feed(encode_frame(Gpus(read())))
    assert isinstance(frame.message, Gpus)

    assert len(frame.message.gpus) == MOST_GPUS


# The thread


def threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "uncork gpus"]


def wait_for_threads() -> None:
    for thread in threads():
        thread.join(HANG_S)
        assert not thread.is_alive()


def messages(caplog: pytest.LogCaptureFixture) -> list[tuple[int, str]]:
    return [(record.levelno, record.getMessage()) for record in caplog.records]


def started() -> GpuUsage:
    """Return readings whose thread has ended."""
    usage = GpuUsage()
    usage.start()
    wait_for_threads()
    return usage


def test_each_reading_is_a_new_one(tell: Tell) -> None:
    """Starting again changes nothing."""
    tell(gpu(percent=10))
    seen: list[Gpus | None] = []

    def pause(seconds: float) -> None:
        seen.append(usage.latest)
        if len(seen) == 2:
            tell(gpu(percent=20))
        elif len(seen) > 2:
            raise RuntimeError("the test is over")

    usage = GpuUsage(pause)
    before = usage.latest
    usage.start()
    usage.start()
    wait_for_threads()

    first, again, other = seen
    assert (before, first, other) == (
        None,
        Gpus({"0": Gpu(utilization=0.1)}),
        Gpus({"0": Gpu(utilization=0.2)}),
    )
    assert again == first
    assert again is not first


@pytest.mark.parametrize("visible", ["", "-1"])
def test_a_worker_without_gpus_reads_nothing(
    tell: Tell, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, visible: str
) -> None:
    tell(gpu(percent=10))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)

    assert (started().latest, messages(caplog)) == (None, [])


_OFF = "metrics of GPUs are off"


@pytest.mark.parametrize(
    ("function", "error", "said"),
    [
        # Many machines have the package and no GPU.
        ("nvmlInit", "NVMLError_LibraryNotFound", (logging.DEBUG, f"{_OFF}: nvmlInit")),
        ("nvmlInit", "NVMLError_DriverNotLoaded", (logging.DEBUG, f"{_OFF}: nvmlInit")),
        *(
            (function, error, (logging.WARNING, f"{_OFF} until this worker restarts: {error}: {function}"))
            for function in ("nvmlInit", "nvmlDeviceGetCount")
            for error in ("NVMLError", "OSError", "RuntimeError")
        ),
    ],
)
def test_an_error_is_said_once(
    tell: Tell, caplog: pytest.LogCaptureFixture, function: str, error: str, said: tuple[int, str]
) -> None:
    caplog.set_level(logging.DEBUG)
    tell(gpu(percent=10), **{function: error})

    assert started().latest is None
    assert messages(caplog) == [said]


def test_without_the_package_no_thread_is_started(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    before = threads()
    GpuUsage().start()

    assert (threads(), messages(caplog)) == (before, [])


def test_something_else_in_the_place_of_the_package_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It may fail when it is imported, or have other functions."""
    monkeypatch.setitem(sys.modules, "pynvml", object())
    started()
    (tmp_path / "pynvml.py").write_text("import os\nraise OSError('no')")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "pynvml")
    GpuUsage().start()

    said = "metrics of GPUs are off until this worker restarts:"
    assert [text for _, text in messages(caplog)] == [
        f"{said} AttributeError: 'object' object has no attribute 'NVMLError_LibraryNotFound'",
        f"{said} OSError: no",
    ]


def test_the_package_has_what_its_stand_in_has() -> None:
    """Also in the lowest version that the extra accepts."""
    real = importlib.import_module("pynvml")
    names = [name for name in vars(pynvml) if name.startswith(("nvml", "NVMLError"))]
    assert len(names) > 10

    assert [name for name in names if not hasattr(real, name)] == []
    assert {"used", "total"} <= {name for name, *_ in real.c_nvmlMemory_t._fields_}
    assert "gpu" in {name for name, *_ in real.c_nvmlUtilization_t._fields_}
    assert {"pid", "usedGpuMemory"} <= {name for name, *_ in real.c_nvmlProcessInfo_t._fields_}
