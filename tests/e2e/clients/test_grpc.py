"""Published gRPC clients against one service, alongside HTTP clients."""

from __future__ import annotations

import asyncio
import queue
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import grpc
import httpx
import numpy as np
import pytest
import tritonclient.grpc as triton
import tritonclient.grpc.aio as triton_aio
import trustme
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase

from tests.e2e.clients import tensorflow
from tests.e2e.clients.test_protocols import DOUBLED, MODELS, ROWS, question, told
from tests.e2e.server import PROBE, SERVICES, Server, eventually, serving
from tests.loops import HANG_S
from uncork_gateway.grpc.messages import message

pytestmark = pytest.mark.slow

STREAMS = f"{SERVICES / 'streams.py'}:Streams"


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with serving(MODELS, "--grpc-port", "0") as running:
        yield running


@pytest.fixture
def client(server: Server) -> Iterator[triton.InferenceServerClient]:
    with triton.InferenceServerClient(server.grpc) as one:
        yield one


def floats(rows: list[list[float]]) -> triton.InferInput:
    values = triton.InferInput("rows", [len(rows), 3], "FP32")
    values.set_data_from_numpy(np.array(rows, np.float32))
    return values


def predict(channel: Any, rows: list[list[float]], **options: Any) -> Any:
    return tensorflow.predict(channel, "models", {"rows": np.array(rows, np.float32)}, **options)


def is_serving(channel: Any, service: str) -> bool:
    """What the standard health service says."""
    stub: Any = health_pb2_grpc.HealthStub(channel)
    reply = stub.Check(health_pb2.HealthCheckRequest(service=service), timeout=HANG_S)
    return bool(reply.status == health_pb2.HealthCheckResponse.SERVING)


def code(error: triton.InferenceServerException) -> str:
    """The status of an error of Triton's client."""
    return str(error.status()).removeprefix("StatusCode.")


def test_tritons_client_is_answered(client: triton.InferenceServerClient) -> None:
    wanted = [triton.InferRequestedOutput("output-0")]
    result = client.infer("models", [floats(ROWS[:3])], outputs=wanted, request_id="seven")

    assert result.as_numpy("output-0").tolist() == DOUBLED[:3]
    assert (result.get_response().id, result.get_response().model_version) == ("seven", "1")
    for algorithm in ("gzip", "deflate"):
        compressed = client.infer("models", [floats(ROWS[:2])], compression_algorithm=algorithm)
        assert compressed.as_numpy("output-0").tolist() == DOUBLED[:2]


def test_tritons_asynchronous_clients_are_answered(
    server: Server, client: triton.InferenceServerClient
) -> None:
    answers: queue.Queue[tuple[Any, Any]] = queue.Queue()
    for row in ROWS[:8]:
        client.async_infer("models", [floats([row])], lambda result, error: answers.put((result, error)))
    found = [answers.get(timeout=HANG_S) for _ in ROWS[:8]]
    assert [error for _, error in found if error is not None] == []
    assert sorted(result.as_numpy("output-0")[0].tolist() for result, _ in found) == DOUBLED[:8]

    async def ask() -> list[Any]:
        async with triton_aio.InferenceServerClient(server.grpc) as one:
            return await asyncio.gather(*[one.infer("models", [floats([row])]) for row in ROWS])

    assert [result.as_numpy("output-0")[0].tolist() for result in asyncio.run(ask())] == DOUBLED


def test_answers_of_a_stream_come_in_order_and_errors_in_their_place(
    client: triton.InferenceServerClient,
) -> None:
    answers: queue.Queue[tuple[Any, Any]] = queue.Queue()
    client.start_stream(lambda result, error: answers.put((result, error)))
    for number in range(100):
        model = "nothing" if number == 50 else "models"
        client.async_stream_infer(model, [floats([ROWS[number % 24]])], request_id=str(number))
    found = [answers.get(timeout=HANG_S) for _ in range(100)]
    client.stop_stream()

    _, failure = found.pop(50)
    assert "unknown model: 'nothing'" in str(failure)
    numbers = [number for number in range(100) if number != 50]
    assert [int(result.get_response().id) for result, _ in found] == numbers
    doubled = [result.as_numpy("output-0")[0].tolist() for result, _ in found]
    assert doubled == [DOUBLED[number % 24] for number in numbers]


def test_an_api_that_streams_answers_piece_by_piece() -> None:
    with serving(STREAMS, "--grpc-port", "0") as server, triton.InferenceServerClient(server.grpc) as client:
        assert client.get_model_config("streams").config.model_transaction_policy.decoupled
        answers: queue.Queue[tuple[Any, Any]] = queue.Queue()
        numbers = triton.InferInput("numbers", [1, 3], "INT64")
        numbers.set_data_from_numpy(np.array([[7, 8, 9]]))
        client.start_stream(lambda result, error: answers.put((result, error)))
        client.async_stream_infer("streams", [numbers], enable_empty_final_response=True)
        found = [answers.get(timeout=HANG_S) for _ in range(4)]
        client.stop_stream()

        assert [error for _, error in found if error is not None] == []
        pieces = [result.as_numpy("output-0")[0] for result, _ in found[:3]]
        assert pieces == [b"7 ", b"8 ", b"9 "]
        last = found[3][0].get_response()
        assert last.parameters["triton_final_response"].bool_param
        assert not last.outputs
        with pytest.raises(triton.InferenceServerException, match="ModelStreamInfer"):
            client.infer("streams", [numbers])


def test_health_reflection_and_metadata(server: Server, client: triton.InferenceServerClient) -> None:
    assert client.is_server_live()
    assert client.is_server_ready()
    assert client.is_model_ready("models")
    assert client.get_model_metadata("models").inputs[0].shape == [-1, 3]
    assert client.get_model_config("models").config.max_batch_size == 32
    [before] = client.get_inference_statistics("models").model_stats
    client.infer("models", [floats(ROWS[:3])])
    [after] = client.get_inference_statistics("models").model_stats
    assert after.inference_count - before.inference_count == 3
    with grpc.insecure_channel(server.grpc) as channel:
        for service in ("", "models", "inference.GRPCInferenceService"):
            assert is_serving(channel, service)
        services = ProtoReflectionDescriptorDatabase(channel).get_services()
        assert "inference.GRPCInferenceService" in services


def test_clients_of_all_protocols_share_a_batch(server: Server) -> None:
    """JSON, arrays, binary, TensorFlow Serving and both kinds of gRPC, by the id of the batch."""
    kinds = ("native", "npy", "v1", "v2", "tensorflow", "binary", "binary in")
    rows = ROWS[: len(kinds) + 2]

    async def infer(row: list[float]) -> tuple[list[float], str]:
        async with grpc.aio.insecure_channel(server.grpc) as channel:
            method = channel.unary_unary(
                "/inference.GRPCInferenceService/ModelInfer",
                request_serializer=message("inference.ModelInferRequest").SerializeToString,
                response_deserializer=message("inference.ModelInferResponse").FromString,
            )
            request = message("inference.ModelInferRequest")(model_name="models")
            request.inputs.add(name="rows", datatype="FP32", shape=[1, 3]).contents.fp32_contents.extend(row)
            call = method(request, timeout=HANG_S)
            response = await call
            trailers = dict(iter(await call.trailing_metadata()))
            return list(response.outputs[0].contents.fp32_contents), str(trailers["x-batch-id"])

    async def ask_tensorflow(row: list[float]) -> tuple[list[float], str]:
        async with grpc.aio.insecure_channel(server.grpc) as channel:
            call = predict(channel, [row])
            response = await call
            trailers = dict(iter(await call.trailing_metadata()))
            return list(response.outputs["output-0"].float_val), str(trailers["x-batch-id"])

    async def ask(http: httpx.AsyncClient, kind: str, row: list[float]) -> tuple[list[float], str]:
        reply = await http.post(**question(kind, row))
        assert reply.status_code == 200
        return told(kind, reply), reply.headers["x-batch-id"]

    async def ask_all() -> list[tuple[list[float], str]]:
        async with httpx.AsyncClient(base_url=server.base, timeout=HANG_S) as http:
            asked = [ask(http, *one) for one in zip(kinds, rows[: len(kinds)], strict=True)]
            return await asyncio.gather(*asked, infer(rows[-2]), ask_tensorflow(rows[-1]))

    def is_one_batch() -> bool:
        answers = asyncio.run(ask_all())
        assert [row for row, _ in answers] == DOUBLED[: len(rows)]
        return len({batch for _, batch in answers}) == 1

    eventually(is_one_batch)


def test_tls_and_keys(tmp_path: Path) -> None:
    """The same certificates and keys as over HTTP; health needs no key."""
    authority = trustme.CA()
    files = {name: tmp_path / f"{name}.pem" for name in ("ca", "server", "client", "keys")}
    authority.cert_pem.write_to_path(files["ca"])
    serving_as = authority.issue_cert("127.0.0.1", "localhost")
    serving_as.private_key_and_cert_chain_pem.write_to_path(files["server"])
    own = authority.issue_cert("client@example.com")
    files["keys"].write_text("a key of enough characters".replace(" ", "-") + "\n")
    options = ["--tls-cert", files["server"], "--tls-client-ca", files["ca"], "--api-key-file", files["keys"]]
    with serving(MODELS, "--grpc-port", "0", *map(str, options), wait=False) as server, ExitStack() as stack:
        eventually(lambda: "ready after" in server.output)
        credentials = grpc.ssl_channel_credentials(
            authority.cert_pem.bytes(), own.private_key_pem.bytes(), own.cert_chain_pems[0].bytes()
        )
        channel = stack.enter_context(grpc.secure_channel(server.grpc, credentials))
        key = ("authorization", "Bearer a-key-of-enough-characters")
        response = predict(channel, ROWS[:1], metadata=[key])
        assert list(response.outputs["output-0"].float_val) == DOUBLED[0]
        with pytest.raises(grpc.RpcError) as caught:
            predict(channel, ROWS[:1])
        assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED
        assert is_serving(channel, "")
        anonymous = grpc.ssl_channel_credentials(authority.cert_pem.bytes())
        stranger = stack.enter_context(grpc.secure_channel(server.grpc, anonymous))
        with pytest.raises(grpc.RpcError) as caught:
            predict(stranger, ROWS[:1], metadata=[key])
        assert caught.value.code() is grpc.StatusCode.UNAVAILABLE


def test_a_server_that_stops_answers_what_it_has(server: Server) -> None:
    """And refuses new calls; it exits with 0."""
    with (
        serving(PROBE, "--grpc-port", "0") as stopping,
        ThreadPoolExecutor() as pool,
        triton.InferenceServerClient(stopping.grpc) as client,
    ):
        seconds = triton.InferInput("seconds", [1], "FP64")
        seconds.set_data_from_numpy(np.array([1.0]))
        running = pool.submit(client.infer, "probe.sleep", [seconds])
        eventually(lambda: stopping.metric("uncork_workers", state="busy") == 1)
        stopping.terminate()
        eventually(lambda: "stopping" in stopping.output)
        with pytest.raises(triton.InferenceServerException) as caught:
            client.infer("probe.sleep", [seconds])
        assert code(caught.value) == "UNAVAILABLE"
        assert running.result(HANG_S).as_numpy("output-0").shape == (1,)
        assert stopping.exit_code() == 0
