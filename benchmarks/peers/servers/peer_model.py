"""What every peer serves, and the arguments each of them takes. Runs in the peers' own environments.

A model is one device: it runs one batch at a time, whatever threads its server calls it from.
"""

import argparse
import os
import threading
import time
from collections.abc import Callable, Sequence

HOST = "127.0.0.1"
BATCH_CAP = 64
Row = Sequence[float]
Model = Callable[[Sequence[Row]], list[float]]


def options() -> argparse.Namespace:
    """Read the arguments: `port`, `grpc_port` (0: not used), `wait_ms` (of a batch, to fill), `model`."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--grpc-port", type=int, default=0)
    parser.add_argument("--wait-ms", type=float, default=0.0)
    parser.add_argument("--model", choices=("sleep", "digits"), required=True)
    return parser.parse_known_args()[0]


def load(name: str) -> Model:
    """Give the model of that name; its settings come from the environment variables PEER_*."""
    return _sleep() if name == "sleep" else _digits()


def _sleep() -> Model:
    intercept_ms, slope_ms = (float(os.environ[f"PEER_{name}_MS"]) for name in ("INTERCEPT", "SLOPE"))
    device = threading.Lock()

    def run(rows: Sequence[Row]) -> list[float]:
        with device:
            time.sleep((intercept_ms + slope_ms * len(rows)) / 1000)
        return [float(sum(row)) for row in rows]

    return run


def _digits() -> Model:
    import joblib
    import numpy as np

    forest = joblib.load(os.environ["PEER_FOREST"])
    device = threading.Lock()

    def run(rows: Sequence[Row]) -> list[float]:
        with device:
            digits: list[float] = forest.predict(np.asarray(rows, dtype="float32")).tolist()
        return digits

    return run
