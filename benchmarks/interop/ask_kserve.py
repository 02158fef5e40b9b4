# mypy: disable-error-code="import-not-found, import-untyped"
"""Call a service of ours with KServe's own client, by V1 and V2. Runs in KServe's environment.

    python ask_kserve.py http://127.0.0.1:3000 digits

Prints each call and its result. The exit code is 1 if a result is wrong.
"""

import asyncio
import sys
from typing import Any

import httpx
import numpy as np
from kserve import InferenceRESTClient, InferInput, InferRequest, RESTConfig

_TYPES = {"BOOL": "bool", "FP16": "float16", "FP32": "float32", "FP64": "float64", "INT64": "int64"}
_ROWS = 2


async def main(url: str, model: str) -> int:
    """Make every call of the client for such a server."""
    async with httpx.AsyncClient() as http:
        metadata = (await http.get(f"{url}/v2/models/{model}")).json()
    [described] = metadata["inputs"]
    shape = [_ROWS, *[max(1, length) for length in described["shape"][1:]]]
    rows = np.zeros(shape, _TYPES[described["datatype"]])
    results = [*await ask_v1(url, model, rows), *await ask_v2(url, model, described, rows)]
    for call, result, is_right in results:
        print(f"{call}: {result}{'' if is_right else '   WRONG'}")
    return 0 if all(is_right for _, _, is_right in results) else 1


async def ask_v1(url: str, model: str, rows: Any) -> list[tuple[str, object, bool]]:
    """Return each V1 call, its result, and whether it is right."""
    async with InferenceRESTClient(RESTConfig(protocol="v1")) as client:
        live = await client.is_server_live(url)
        ready = await client.is_model_ready(url, model)
        answer = await client.infer(url, {"instances": rows.tolist()}, model_name=model)
    predictions = answer["predictions"]
    return [
        ("v1 is_server_live", live, live is True),
        ("v1 is_model_ready", ready, ready is True),
        ("v1 infer", {"predictions": predictions}, len(predictions) == len(rows)),
    ]


async def ask_v2(url: str, model: str, described: Any, rows: Any) -> list[tuple[str, object, bool]]:
    """Return each V2 call, its result, and whether it is right."""
    async with InferenceRESTClient(RESTConfig(protocol="v2")) as client:
        live = await client.is_server_live(url)
        server_ready = await client.is_server_ready(url)
        ready = await client.is_model_ready(url, model)
        results = [
            ("v2 is_server_live", live, live is True),
            ("v2 is_server_ready", server_ready, server_ready is True),
            ("v2 is_model_ready", ready, ready is True),
        ]
        for binary in (False, True):
            tensor = InferInput(described["name"], list(rows.shape), described["datatype"])
            tensor.set_data_from_numpy(rows, binary_data=binary)
            request = InferRequest(model_name=model, infer_inputs=[tensor])
            [output] = (await client.infer(url, request, model_name=model)).outputs
            said = f"{output.name} {output.datatype} {output.shape}: {output.as_numpy().tolist()}"
            call = "v2 infer, binary" if binary else "v2 infer"
            results.append((call, said, output.shape[0] == len(rows)))
    return results


if __name__ == "__main__":
    sys.exit(asyncio.run(main(*sys.argv[1:])))
