"""What batch times depend on besides the code: the device and the libraries."""

import hashlib
import os
import platform
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from uncork_workers.cores import usable_cores

_LIBRARIES = (
    "numpy",
    "scipy",
    "sklearn",
    "torch",
    "transformers",
    "xgboost",
    "lightgbm",
    "onnxruntime",
    "tensorflow",
    "jax",
)
_VARIABLES = ("CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES", "OMP_NUM_THREADS")


def surroundings() -> str:
    """Return a digest of the device and of the versions of the libraries that are imported; imports none."""
    return hashlib.sha256("\n".join(_described()).encode()).hexdigest()


def _described() -> Iterator[str]:
    yield f"{platform.python_version()} {platform.machine()} {usable_cores()} {_cpu()}"
    yield from (f"{name}={os.environ.get(name)}" for name in _VARIABLES)
    for name in _LIBRARIES:
        if (library := sys.modules.get(name)) is not None:
            yield f"{name} {getattr(library, '__version__', '')}"
    torch = sys.modules.get("torch")
    with suppress(Exception):  # any code may call itself torch
        # Otherwise the model does not use the GPU, and asking for its name would take up memory there.
        if torch is not None and torch.cuda.is_initialized():
            yield str(torch.cuda.get_device_name())


def _cpu() -> str:
    with suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text(errors="replace").splitlines()
        return next((line for line in lines if line.startswith("model name")), "")
    return ""
