"""GPUs for the workers of real servers: stand-ins for NVML and for nvidia-smi."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.server import ROOT

MEMORY_BYTES = 80_000_000_000


class FakeGpus:
    """Two GPUs that workers find, unless a test changes them."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._file = folder / "nvml.json"
        tool = folder / "nvidia-smi"
        tool.write_text("#!/bin/sh\necho 'GPU 0: H200 (UUID: GPU-a)'\necho 'GPU 1: H200 (UUID: GPU-b)'\n")
        tool.chmod(0o755)
        monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
        monkeypatch.setenv("PYTHONPATH", str(ROOT / "tests/nvml"))
        monkeypatch.setenv("FAKE_NVML", str(self._file))
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
        self.set()

    def set(self, *, percent: int = 87, **faults: str) -> None:
        """Set how busy the first GPU is, and the faults of functions; see ``tests/nvml``."""
        first: dict[str, Any] = {"uuid": "GPU-a", "percent": percent, "own": [5_000_000_000]}
        gpus = [
            {**first, "memory": [8_000_000_000, MEMORY_BYTES]},
            {"uuid": "GPU-b", "percent": 0, "memory": [0, MEMORY_BYTES], "own": []},
        ]
        text = json.dumps({"gpus": gpus, "faults": faults})
        written = self._file.with_suffix(".new")
        written.write_text(text)
        written.replace(self._file)  # workers may read it now
