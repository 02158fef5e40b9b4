"""The GPUs of this machine, and those assigned to workers."""

import ctypes.util
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from uncork_workers.plural import plural

GPU_VARIABLE = "CUDA_VISIBLE_DEVICES"
_GPU_NAME = re.compile(r"[0-9]{1,4}|(GPU|MIG)-[0-9A-Za-z/-]+")
_TOOL_TIMEOUT_S = 10.0
_AMD = "dev/kfd"
_NVIDIA = "0x10de"
# PCI cards, Windows GPUs inside WSL, and Jetson boards.
_NVIDIA_DEVICES = ("dev/nvidia*", "dev/dxg", "dev/nvmap", "dev/nvhost*")


def read_gpus(text: str) -> list[str]:
    """Read GPU names from a comma-separated list, or take the first N visible GPUs if ``text`` is a count.

    Names are values of ``CUDA_VISIBLE_DEVICES``: numbers, or UUIDs such as ``GPU-8932f937``.

    Raises:
        ValueError: if the text is neither; the message says what is accepted.
    """
    names = [name.strip() for name in text.split(",")]
    is_count = len(names) == 1
    if not is_count and not names[-1]:
        names.pop()
    for name in names:
        if not _GPU_NAME.fullmatch(name):
            raise ValueError(
                f"{text!r} does not name GPUs; give a count such as 2, or comma-separated numbers or UUIDs "
                "such as 0,1 (for a single one, end with a comma: 1,)"
            )
    if is_count and text.strip().isdecimal():
        return _first_gpus(int(text))
    if len(set(names)) < len(names):
        raise ValueError(f"{text!r} names a GPU twice; to share GPUs, run more workers than GPUs")
    return names


def _first_gpus(count: int) -> list[str]:
    visible = os.environ.get(GPU_VARIABLE)
    names = [str(number) for number in range(count)] if visible is None else visible.split(",")[:count]
    if count < 1:
        raise ValueError("the number of GPUs must be at least 1")
    if len(names) < count or not all(names):
        raise ValueError(f"{GPU_VARIABLE} is {visible!r}, which does not name {plural(count, 'GPU')}")
    return names


def gpus_here(
    root: Path = Path("/"), *, find_library: Callable[[str], str | None] = ctypes.util.find_library
) -> tuple[int | None, str]:
    """Return the number of GPUs of this machine, None if unknown; and for messages, how or why that is so.

    It is 0 only if there is no sign of a GPU or driver at all. Missing device files prove nothing: a driver
    may create them when the first program starts.
    """
    if sys.platform != "linux":
        return None, f"not known on {sys.platform}"
    if (root / _AMD).exists():
        return None, f"/{_AMD} exists, but Uncork cannot count AMD GPUs"
    listed = _listed_by_tool()
    if listed:
        return listed, f"nvidia-smi lists {listed}"
    sign = _sign_of_nvidia(root) or find_library("cuda")
    if sign:
        return None, f"{sign} exists, but nvidia-smi lists no GPUs"
    return (
        0,
        "no GPU in nvidia-smi, no libcuda, no NVIDIA or AMD device in /dev, no NVIDIA device on the PCI bus",
    )


def missing_gpus(names: Sequence[str], total: int | None) -> list[str]:
    """Return the GPUs in ``names`` that a machine with ``total`` GPUs lacks; none if ``total`` is unknown.

    UUIDs may be abbreviated, so they are only missing where there is no GPU at all.
    """
    if total is None:
        return []
    return [name for name in names if total == 0 or (name.isdecimal() and int(name) >= total)]


def _listed_by_tool() -> int:
    """Return the number of GPUs that nvidia-smi lists; 0 also if it is not installed or fails."""
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return 0
    try:
        listed = subprocess.run(
            [tool, "--list-gpus"], capture_output=True, text=True, timeout=_TOOL_TIMEOUT_S, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return 0
    return sum(line.startswith("GPU ") for line in listed.stdout.splitlines())


def _sign_of_nvidia(root: Path) -> str | None:
    """Return a file that exists only with an NVIDIA GPU or driver."""
    for pattern in _NVIDIA_DEVICES:
        for device in sorted(root.glob(pattern)):
            return f"/{device.relative_to(root)}"
    for vendor in sorted(root.glob("sys/bus/pci/devices/*/vendor")):
        if vendor.read_text().strip() == _NVIDIA:
            return f"/{vendor.parent.relative_to(root)}"
    return None
