# mypy: disable-error-code="import-not-found, import-untyped"
"""Call a service of ours with KServe's own clients, by V1, V2 and gRPC. Runs in KServe's environment.

    python ask_kserve.py http://127.0.0.1:3000 digits [127.0.0.1:8001]

The last argument is the gRPC port, if there is one. Prints each call and its result. The exit code is 1 if a
result is wrong.
"""

import asyncio
import sys
from typing import Any

import httpx
import numpy as np
from kserve import InferenceGRPCClient, InferenceRESTClient, InferInput, InferRequest, RESTConfig

_TYPES = {"BOOL": "bool", "FP16": "float16", "FP32": "float32", "FP64": "float64", "INT64": "int64"}
_ROWS = 2
Result = tuple[str, object, bool]
"""A call, its result, and whether it is right."""


async def main(url: str, model: str, grpc_address: str | None = None) -> int:
    """Make every call of the clients for such a server."""
    async with httpx.AsyncClient() as http:
        metadata = (await http.get(f"{url}/v2/models/{model}")).json()
    [described] = metadata["inputs"]
    shape = [_ROWS, *[max(1, length) for length in described["shape"][1:]]]
    rows = np.zeros(shape, _TYPES[described["datatype"]])
    results = [*await ask_v1(url, model, rows), *await ask_v2(url, model, described, rows)]
    if grpc_address is not None:
        results += await ask_grpc(grpc_address, model, described, rows)
    for call, result, is_right in results:
        print(f"{call}: {result}{'' if is_right else '   WRONG'}")
    return 0 if all(is_right for _, _, is_right in results) else 1


async def ask_v1(url: str, model: str, rows: Any) -> list[Result]:
    """Make the calls of V1."""
    async with InferenceRESTClient(RESTConfig(protocol="v1")) as client:
        results = [
            said("v1 is_server_live", await client.is_server_live(url)),
            said("v1 is_model_ready", await client.is_model_ready(url, model)),
        ]
        answer = await client.infer(url, {"instances": rows.tolist()}, model_name=model)
    return [*results, ("v1 infer", answer, len(answer["predictions"]) == len(rows))]


async def ask_v2(url: str, model: str, described: Any, rows: Any) -> list[Result]:
    """Make the calls of V2."""
    async with InferenceRESTClient(RESTConfig(protocol="v2")) as client:
        results = [
            said("v2 is_server_live", await client.is_server_live(url)),
            said("v2 is_server_ready", await client.is_server_ready(url)),
            said("v2 is_model_ready", await client.is_model_ready(url, model)),
        ]
        for call, binary in (("v2 infer", False), ("v2 infer, binary", True)):
            request = request_of(model, described, rows, binary=binary)
            results.append((call, *output_of(await client.infer(url, request, model_name=model), rows)))
    return results


async def ask_grpc(address: str, model: str, described: Any, rows: Any) -> list[Result]:
    """Make the calls over gRPC."""
    async with InferenceGRPCClient(address) as client:
        results = [
            said("grpc is_server_live", await client.is_server_live()),
            said("grpc is_server_ready", await client.is_server_ready()),
            said("grpc is_model_ready", await client.is_model_ready(model)),
        ]
        for call, raw in (("grpc infer", False), ("grpc infer, raw", True)):
            request = request_of(model, described, rows, binary=raw)
            results.append((call, *output_of(await client.infer(request), rows)))
    return results


def said(call: str, answer: object) -> Result:
    return call, answer, answer is True


def request_of(model: str, described: Any, rows: Any, *, binary: bool) -> Any:
    """Return a request with these rows."""
    tensor = InferInput(described["name"], list(rows.shape), described["datatype"])
    tensor.set_data_from_numpy(rows, binary_data=binary)
    return InferRequest(model_name=model, infer_inputs=[tensor])


def output_of(answer: Any, rows: Any) -> tuple[str, bool]:
    """Return the only output of an answer, and whether it has a row for each row."""
    [output] = answer.outputs
    said = f"{output.name} {output.datatype} {output.shape}: {output.as_numpy().tolist()}"
    return said, output.shape[0] == len(rows)


if __name__ == "__main__":
    sys.exit(asyncio.run(main(*sys.argv[1:])))
