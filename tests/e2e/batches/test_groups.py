"""``group_by`` with real processes: every protocol, and requests that are split, fail or wait too long."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import numpy as np
import pytest
import tritonclient.grpc as triton_grpc
import tritonclient.http as triton_http

from tests.e2e.clients.tensorflow import predict
from tests.e2e.server import HTTP, SERVICES, Server, serving
from tests.loops import HANG_S

pytestmark = pytest.mark.slow

GROUPS = f"{SERVICES / 'groups.py'}:Groups"
LANGUAGES = ["de", "fr", "de", "it", "fr"]
Found = list[tuple[int, Any]]


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with serving(GROUPS, "--grpc-port", "0", "--workers", "2") as running:
        yield running


def post(server: Server, path: str, body: Any, **headers: str) -> Any:
    reply = HTTP.post(f"{server.base}{path}", json=body, headers=headers)
    assert reply.status_code == 200, reply.text
    return reply.json()


def rows_of(languages: Sequence[str]) -> list[dict[str, Any]]:
    return [{"n": number, "language": language} for number, language in enumerate(languages)]


def native(server: Server) -> Found:
    found = [post(server, "/predict", row) for row in rows_of(LANGUAGES)]
    return [(one["n"], one["group"]) for one in found]


def v1(server: Server) -> Found:
    found = post(server, "/v1/models/groups:predict", {"instances": rows_of(LANGUAGES)})["predictions"]
    return [(one["n"], one["group"]) for one in found]


def tensorflow(server: Server) -> Found:
    columns = {"n": list(range(len(LANGUAGES))), "language": LANGUAGES}
    found = post(server, "/v1/models/groups/versions/1:predict", {"inputs": columns})["outputs"]
    return [*zip(found["n"], found["group"], strict=True)]


def table(server: Server) -> Found:
    lines = [f'{number},"{language}"\r\n' for number, language in enumerate(LANGUAGES)]
    text = "n,language\r\n" + "".join(lines)
    headers = {"content-type": "text/csv", "accept": "text/csv"}
    reply = HTTP.post(f"{server.base}/table", content=text, headers=headers)
    _, *found = [line.split(",") for line in reply.text.splitlines()]
    return [(int(float(number)), language) for number, language in found]


def inputs(kind: Any, **binary: bool) -> list[Any]:
    numbers, languages = kind("n", [len(LANGUAGES)], "INT64"), kind("language", [len(LANGUAGES)], "BYTES")
    numbers.set_data_from_numpy(np.arange(len(LANGUAGES)), **binary)
    languages.set_data_from_numpy(np.array(LANGUAGES, dtype=object), **binary)
    return [numbers, languages]


def of_triton(result: Any) -> Found:
    groups = [group.decode() if isinstance(group, bytes) else group for group in result.as_numpy("group")]
    return [*zip(result.as_numpy("n").tolist(), groups, strict=True)]


def v2(server: Server, *, binary: bool) -> Found:
    outputs = [triton_http.InferRequestedOutput(name, binary_data=binary) for name in ("n", "group")]
    with triton_http.InferenceServerClient(server.base.removeprefix("http://")) as client:
        asked = inputs(triton_http.InferInput, binary_data=binary)
        return of_triton(client.infer("groups", asked, outputs=outputs))


def v2_grpc(server: Server) -> Found:
    with triton_grpc.InferenceServerClient(server.grpc) as client:
        return of_triton(client.infer("groups", inputs(triton_grpc.InferInput)))


def predict_grpc(server: Server) -> Found:
    inputs = {"n": np.arange(len(LANGUAGES)), "language": np.array(LANGUAGES, object)}
    with grpc.insecure_channel(server.grpc) as channel:
        outputs = predict(channel, "groups", inputs).outputs
    return [*zip(outputs["n"].int64_val, map(bytes.decode, outputs["group"].string_val), strict=True)]


CLIENTS: list[Callable[[Server], Found]] = [
    native,
    v1,
    tensorflow,
    table,
    lambda server: v2(server, binary=False),
    lambda server: v2(server, binary=True),
    v2_grpc,
    predict_grpc,
]


def test_every_protocol_is_grouped(server: Server) -> None:
    """All at once: rows return in order, with the group of each; calls have rows of one group only."""
    before = server.metric("uncork_batches_total", api="predict")
    with ThreadPoolExecutor(2 * len(CLIENTS)) as pool:
        found = [pool.submit(client, server) for client in CLIENTS * 2]
        for one in found:
            assert one.result(HANG_S) == [*enumerate(LANGUAGES)]
    rows = (len(CLIENTS) - 1) * 2 * len(LANGUAGES)
    assert server.metric("uncork_batches_total", api="predict") - before < rows / 2
