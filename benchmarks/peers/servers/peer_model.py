"""What every peer serves, and the arguments each of them takes. Runs in the peers' own environments.

A model is one device: it runs one batch at a time, whatever threads its server calls it from.
"""

import argparse
import os
import socket
import threading
import time
from collections.abc import Callable, Sequence

HOST = "127.0.0.1"
BATCH_CAP = 64
VOCABULARY = 1000
"""Tokens that the encoder knows."""
Row = Sequence[float]
Model = Callable[[Sequence[Row]], list[float]]


def options() -> argparse.Namespace:
    """Read the arguments: `port`, `grpc_port` (0: not used), `wait_ms` (of a batch, to fill), `model`."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--grpc-port", type=int, default=0)
    parser.add_argument("--wait-ms", type=float, default=0.0)
    parser.add_argument("--model", choices=tuple(MODELS), required=True)
    return parser.parse_known_args()[0]


def free_port() -> int:
    """Return a port for something that no client uses."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
        return port


def load(name: str) -> Model:
    """Return the model of that name; its settings come from the environment variables PEER_*."""
    return MODELS[name]()


def _sleep() -> Model:
    intercept_ms, slope_ms = (float(os.environ[f"PEER_{name}_MS"]) for name in ("INTERCEPT", "SLOPE"))
    lock = threading.Lock()

    def run(rows: Sequence[Row]) -> list[float]:
        with lock:
            time.sleep((intercept_ms + slope_ms * len(rows)) / 1000)
        return [float(sum(row)) for row in rows]

    return run


def _digits() -> Model:
    import joblib
    import numpy as np

    forest = joblib.load(os.environ["PEER_FOREST"])
    lock = threading.Lock()

    def run(rows: Sequence[Row]) -> list[float]:
        with lock:
            digits: list[float] = forest.predict(np.asarray(rows, dtype="float32")).tolist()
        return digits

    return run


def _encoder() -> Model:
    import torch

    layers, width, heads = int(os.environ.get("PEER_ENCODER_LAYERS", "6")), 384, 12
    # Random weights, the same in every process.
    torch.manual_seed(0)
    layer = torch.nn.TransformerEncoderLayer(
        width, heads, dim_feedforward=4 * width, activation="gelu", batch_first=True
    )
    model = torch.nn.Sequential(
        torch.nn.Embedding(VOCABULARY, width), torch.nn.TransformerEncoder(layer, layers)
    )
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model.eval().to(device)
    lock = threading.Lock()

    def run(rows: Sequence[Row]) -> list[float]:
        with lock, torch.inference_mode():
            tokens = torch.tensor(rows, dtype=torch.int64).to(device)
            # Which component is the largest does not depend on rounding, unlike its value.
            largest: list[float] = model(tokens).mean(1).argmax(1).tolist()
        return largest

    return run


MODELS = {"sleep": _sleep, "digits": _digits, "encoder": _encoder}
