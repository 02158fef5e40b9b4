"""One array in every form in which clients can request it, from the service in ``services/vectors.py``."""

import json
from collections.abc import Mapping
from dataclasses import replace

from benchmarks.harness.commands import environment, uncork_serve
from benchmarks.harness.paths import SERVICES
from benchmarks.harness.rounds import Target, ask_alone, target
from uncork_loadtests.servers import Server

V2_BINARY = "V2 binary"
NPY = ".npy"

_FLOAT_BYTES = 4
_ROW = [1.5]
_V2 = {"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 1], "data": _ROW}]}
_V2_PATH = "/v2/models/vectors/infer"
_REQUESTS: Mapping[str, tuple[str, object, Mapping[str, str]]] = {
    "JSON": ("/predict", _ROW, {}),
    "V2 JSON": (_V2_PATH, _V2, {}),
    V2_BINARY: (_V2_PATH, {**_V2, "parameters": {"binary_data_output": True}}, {}),
    NPY: ("/predict", _ROW, {"Accept": "application/x-npy"}),
}


def vectors_service(answer_bytes: int, options: Mapping[str, object] | None = None) -> list[str]:
    """Return the command of a service whose answers are arrays of this size, in whole values."""
    variables = {"VECTOR_VALUES": answer_bytes // _FLOAT_BYTES}
    return [*environment(variables), *uncork_serve(f"{SERVICES / 'vectors.py'}:Vectors", options)]


def answer_forms(server: Server) -> dict[str, Target]:
    """Return the request for each form, with its answer; raise BenchError if the server does not answer."""
    found = {}
    for name, (path, value, headers) in _REQUESTS.items():
        bodies = [json.dumps(value).encode()]
        answers = ask_alone(server, path=path, bodies=bodies, headers=headers)
        each = target(server, path=path, bodies=bodies, expected=answers)
        found[name] = replace(each, plan=replace(each.plan, headers=tuple(headers.items())))
    return found
