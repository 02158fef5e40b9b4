"""One array in every form in which clients can get it, from the service in ``services/vectors.py``."""

import json
import sys
from collections.abc import Mapping

from benchmarks.harness.generators import Traffic
from benchmarks.harness.paths import SERVICES
from benchmarks.pairs.pairs import ask_alone
from benchmarks.peers.entrants import Running
from uncork_loadtests.servers import HOST, Server

V2_BINARY = "V2 binary"
NPY = ".npy"

_SERVICE = SERVICES / "vectors.py"
_FLOAT_BYTES = 4
_ROW = [1.5]
_V2 = {"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 1], "data": _ROW}]}
_V2_PATH = "/v2/models/vectors/infer"
_ASKED: Mapping[str, tuple[str, object, Mapping[str, str]]] = {
    "JSON": ("/predict", _ROW, {}),
    "V2 JSON": (_V2_PATH, _V2, {}),
    V2_BINARY: (_V2_PATH, {**_V2, "parameters": {"binary_data_output": True}}, {}),
    NPY: ("/predict", _ROW, {"Accept": "application/x-npy"}),
}


def vectors_service(answer_bytes: int) -> list[str]:
    """The command of a service whose answers have an array of so many bytes, rounded down to whole values."""
    variable = f"VECTOR_VALUES={answer_bytes // _FLOAT_BYTES}"
    return ["env", variable, sys.executable, "-m", "uncork", "serve", f"{_SERVICE}:Vectors", "--host", HOST]


def answer_forms(server: Server) -> dict[str, Running]:
    """What to ask for each form, with the answer to it; BenchError if the server does not answer."""
    there = {}
    for name, (path, value, headers) in _ASKED.items():
        bodies = [json.dumps(value).encode()]
        traffic = Traffic(
            path=path,
            bodies=bodies,
            expected=ask_alone(server, path=path, bodies=bodies, headers=headers),
            connections=1,
            seconds=1.0,
            headers=headers,
        )
        there[name] = Running(server=server, front=server, traffic=traffic)
    return there
