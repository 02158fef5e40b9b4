"""A model on a device that one batch uses at a time, with work before it that needs the CPU.

``STAGES_PREPARE_MS`` for 64 rows is Python code or, with ``STAGES_GIL=no``, work that releases the GIL. The
model takes 5 ms and 0.5 ms a row, in ``STAGES_LAUNCHES`` calls with a little Python code between them.
"""

import fcntl
import os
import tempfile
import time
from pathlib import Path

from uncork import Service, api
from uncork.adapters import Json

_FULL = 64
_LAUNCH_S = 0.0002


class _Work(Service):
    def setup(self) -> None:
        self.prepare_s = float(os.environ["STAGES_PREPARE_MS"]) / 1000 / _FULL
        self.needs_gil = os.environ.get("STAGES_GIL") != "no"
        self.launches = int(os.environ.get("STAGES_LAUNCHES", "0"))
        # Workers of one server share the device.
        self.device = Path(tempfile.gettempdir(), f"uncork-device-{os.getppid()}").open("w")  # noqa: SIM115

    def teardown(self) -> None:
        self.device.close()

    def tokenize(self, rows: list[float]) -> list[float]:
        if self.needs_gil:
            _compute(self.prepare_s * len(rows))
        else:
            time.sleep(self.prepare_s * len(rows))
        return rows

    def double(self, rows: list[float]) -> list[float]:
        seconds = 0.005 + 0.0005 * len(rows)
        fcntl.flock(self.device, fcntl.LOCK_EX)
        for _ in range(self.launches):
            _compute(_LAUNCH_S)
            time.sleep(seconds / self.launches)
        if not self.launches:
            time.sleep(seconds)
        fcntl.flock(self.device, fcntl.LOCK_UN)
        return [2 * row for row in rows]


class InTurn(_Work):
    """Prepares in the handler."""

    @api(input=Json(), mb_max_batch_size=_FULL, mb_max_latency=10_000)
    def predict(self, rows: list[float]) -> list[float]:
        """Return twice each row."""
        return self.double(self.tokenize(rows))


class InStages(_Work):
    """Prepares in a stage."""

    @api(input=Json(), mb_max_batch_size=_FULL, mb_max_latency=10_000, prepare=_Work.tokenize)
    def predict(self, rows: list[float]) -> list[float]:
        """Return twice each row."""
        return self.double(rows)


def _compute(seconds: float) -> None:
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        pass
