"""The --gpus option, and the GPUs of a machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from uncork_workers.supervision.gpus import gpus_here, missing_gpus, read_gpus


@pytest.mark.parametrize(
    ("text", "visible", "gpus"),
    [
        ("1", None, ["0"]),
        ("3", None, ["0", "1", "2"]),
        ("2", "4,5,6", ["4", "5"]),
        ("0,1", "4,5,6", ["0", "1"]),
        ("3,", None, ["3"]),
        ("2, 0", None, ["2", "0"]),
        ("GPU-8932f937-d72c-4106-c12f-20bd9faed9f6", None, ["GPU-8932f937-d72c-4106-c12f-20bd9faed9f6"]),
        ("MIG-GPU-8932f937/1/0,MIG-ab12", None, ["MIG-GPU-8932f937/1/0", "MIG-ab12"]),
    ],
)
def test_gpus_are_a_count_or_names(
    monkeypatch: pytest.MonkeyPatch, text: str, visible: str | None, gpus: list[str]
) -> None:
    """A count selects from the visible GPUs; one number with a trailing comma is a name."""
    set_visible(monkeypatch, visible)

    assert read_gpus(text) == gpus


@pytest.mark.parametrize(
    ("text", "visible", "says"),
    [
        ("", None, "'' does not name GPUs; give a count such as 2, or comma-separated numbers"),
        (",", None, "',' does not name GPUs"),
        ("0,,1", None, "'0,,1' does not name GPUs"),
        ("all", None, "'all' does not name GPUs"),
        ("-1", None, "'-1' does not name GPUs"),
        ("0,x", None, "'0,x' does not name GPUs"),
        ("10000", None, "'10000' does not name GPUs"),
        ("0", None, "the number of GPUs must be at least 1"),
        ("1,1", None, "'1,1' names a GPU twice"),
        ("3", "4,5", "CUDA_VISIBLE_DEVICES is '4,5', which does not name 3 GPUs"),
        ("1", "", "CUDA_VISIBLE_DEVICES is '', which does not name 1 GPU"),
    ],
)
def test_other_gpus_are_refused(
    monkeypatch: pytest.MonkeyPatch, text: str, visible: str | None, says: str
) -> None:
    set_visible(monkeypatch, visible)

    with pytest.raises(ValueError, match=says):
        read_gpus(text)


def set_visible(monkeypatch: pytest.MonkeyPatch, visible: str | None) -> None:
    if visible is None:
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    else:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)


LISTED = "GPU 0: H200 (UUID: GPU-1)\n  MIG 1g.18gb Device 0: (UUID: MIG-2)\nGPU 1: H200 (UUID: GPU-3)"


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setattr("sys.platform", "linux")
    return Machine(tmp_path)


class Machine:
    """A folder that stands for the root of the file system."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.has_library = False

    def file(self, path: str, content: str = "") -> None:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content)

    def tool(self, says: str, code: int = 0) -> None:
        self.file("bin/nvidia-smi", f"#!/bin/sh\necho '{says}'\nexit {code}\n")
        (self.root / "bin/nvidia-smi").chmod(0o755)

    def gpus(self) -> tuple[int | None, str]:
        return gpus_here(self.root, find_library=lambda name: f"lib{name}.so" if self.has_library else None)


def test_a_machine_without_any_sign_of_a_gpu_has_none(machine: Machine) -> None:
    machine.file("sys/bus/pci/devices/0000:00:01.0/vendor", "0x8086\n")

    assert machine.gpus() == (
        0,
        "no GPU in nvidia-smi, no libcuda, no NVIDIA or AMD device in /dev, no NVIDIA device on the PCI bus",
    )


def test_the_tool_counts_gpus_but_not_their_parts(machine: Machine) -> None:
    machine.tool(LISTED)

    assert machine.gpus() == (2, "nvidia-smi lists 2")


@pytest.mark.parametrize(
    ("path", "content", "sign"),
    [
        ("dev/nvidia0", "", "/dev/nvidia0"),
        ("dev/nvidiactl", "", "/dev/nvidiactl"),
        ("dev/dxg", "", "/dev/dxg"),
        ("dev/nvmap", "", "/dev/nvmap"),
        ("sys/bus/pci/devices/0000:00:04.0/vendor", "0x10de\n", "/sys/bus/pci/devices/0000:00:04.0"),
    ],
)
@pytest.mark.parametrize("code", [None, 0, 9])
def test_a_sign_of_a_gpu_leaves_it_open(
    machine: Machine, path: str, content: str, sign: str, code: int | None
) -> None:
    """Without a working tool the count is unknown, never 0."""
    machine.file(path, content)
    if code is not None:
        machine.tool("No devices were found", code)

    assert machine.gpus() == (None, f"{sign} exists, but nvidia-smi lists no GPUs")


def test_other_signs_that_leave_it_open(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """AMD's GPUs are unknown to nvidia-smi, which may be installed too; and so are other systems."""
    machine.has_library = True
    assert machine.gpus()[0] is None

    machine.tool(LISTED)
    machine.file("dev/kfd")
    assert machine.gpus() == (None, "/dev/kfd exists, but Uncork cannot count AMD GPUs")

    monkeypatch.setattr("sys.platform", "darwin")
    assert machine.gpus() == (None, "not known on darwin")


@pytest.mark.parametrize(
    ("names", "total", "missing"),
    [
        (["0", "1"], 2, []),
        (["0", "2", "3"], 2, ["2", "3"]),
        (["GPU-1", "MIG-2"], 2, []),
        (["GPU-1", "0"], 0, ["GPU-1", "0"]),
        (["7"], None, []),
    ],
)
def test_what_is_missing_is_known_by_number(names: list[str], total: int | None, missing: list[str]) -> None:
    """UUIDs may be abbreviated, so they are missing only on a machine without GPUs."""
    assert missing_gpus(names, total) == missing
