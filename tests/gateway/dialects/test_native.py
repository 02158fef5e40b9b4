"""Native routes end to end: media types in and out, handlers' responses, shared batches."""

import asyncio
import contextlib
import io
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from msgspec.structs import replace

from tests.gateway.fake_worker import FakeWorker, service
from tests.gateway.gateway_stage import GatewayStage, gateway, problem
from tests.gateway.running import turns
from uncork_gateway.codecs import make_codec
from uncork_gateway.dialects import Native
from uncork_workers.definition.adapters import Json, NdArray
from uncork_workers.definition.outputs import media_types, responses
from uncork_workers.definition.outputs.media_types import Csv, Npy
from uncork_workers.definition.service import Service, api, find_apis
from uncork_workers.process.batches.execution import Executor
from uncork_workers.wire.forms import TensorForm
from uncork_workers.wire.frames import encode_frame, split_payload
from uncork_workers.wire.messages import Batch, Hello
from uncork_workers.wire.schema import CSV, JSON, NPY, ApiDescription, ServiceDescription

RESPONSES: dict[str, Any] = {
    "created": responses.Response({"id": 7}, 201, {"Location": "/7", "X-Note": "é"}),
    "page": responses.Response("<p>", content_type="text/html"),
    "gone": responses.Response("gone", 410),
    "lost": responses.Response({"id": 7}, 404),
    "blank": responses.Response(b"", 409),
    "empty": responses.Response(None, 204),
    "raw": b"\0\xff",
    "row": {"a": 1},
}


class Kinds(Service):
    """An api for each kind of offer."""

    @api(input=NdArray(dtype="float32", shape=(2,)))
    def predict(self, rows: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """Rows doubled."""
        return rows * 2

    @api(input=NdArray(dtype="float32", shape=(2,)), output=Npy())
    def arrays(self, rows: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """Sums, as .npy unless they are no array."""
        sums: np.ndarray[Any, Any] = rows.sum(axis=1)
        return sums

    @api(input=NdArray(dtype="int64", shape=()), output=[Csv(), media_types.Json()])
    def table(self, rows: np.ndarray[Any, Any]) -> dict[str, Any]:
        """Columns."""
        return {"n": rows, "half": rows / 2}

    @api(input=Json())
    def responses(self, items: list[str]) -> list[Any]:
        """What is asked for by name."""
        return [RESPONSES[item] for item in items]


class Working:
    """A gateway with one worker that runs batches on demand."""

    def __init__(self, stage: GatewayStage, worker: FakeWorker) -> None:
        self._stage = stage
        self._worker = worker
        self._executor = Executor(Kinds())

    async def work(self, batches: int = 1) -> list[Batch]:
        done = []
        for _ in range(batches):
            batch, payload = await self._worker.batch()
            reply, bodies = self._executor.run(batch, split_payload(payload, batch.lengths))
            self._worker.send_bytes(encode_frame(reply, bodies))
            done.append(batch)
        return done

    def ask(self, path: str, content: bytes, **headers: str) -> asyncio.Task[httpx.Response]:
        """Send a request; underscores in header names become dashes."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return asyncio.create_task(self._stage.http.post(path, content=content, headers=named))

    async def answer(self, path: str, content: bytes, **headers: str) -> httpx.Response:
        """Send a request, and run its batch."""
        asking = self.ask(path, content, **headers)
        await self.work()
        return await asking

    async def counted(self, api: str) -> dict[str, float]:
        """Count the answers of an API by status."""
        start = f'uncork_requests_total{{api="{api}",protocol="http",service="kinds",status="'
        lines = (await self._stage.http.get("/metrics")).text.splitlines()
        found = [line.removeprefix(start).split('"} ') for line in lines if line.startswith(start)]
        return {status: float(count) for status, count in found if float(count)}


@contextlib.asynccontextmanager
async def working(folder: Path) -> AsyncIterator[Working]:
    serves = ServiceDescription(
        name="Kinds", apis=[definition.description for definition in find_apis(Kinds)]
    )
    async with gateway(folder) as stage:
        yield Working(stage, await stage.worker(serves=serves))


def npy(values: Any, dtype: str = "<f4") -> bytes:
    """Return an array as an .npy file."""
    file = io.BytesIO()
    np.save(file, np.array(values, dtype))
    return file.getvalue()


def loaded(reply: httpx.Response) -> np.ndarray[Any, Any]:
    assert (reply.status_code, reply.headers["content-type"]) == (200, NPY)
    array: np.ndarray[Any, Any] = np.load(io.BytesIO(reply.content))
    return array


async def test_arrays_come_and_go_as_files(tmp_path: Path) -> None:
    """A single row is sent and answered without the leading axis."""
    async with working(tmp_path) as on:
        one = loaded(await on.answer("/predict", npy([1, 2]), content_type=NPY, accept=NPY))
        many = loaded(await on.answer("/predict", npy([[1, 2], [3, 4]], ">f8"), content_type=NPY, accept=NPY))
        first = loaded(await on.answer("/predict", npy([[1, 2]]), content_type=NPY, accept=NPY))
        of_json = loaded(await on.answer("/predict", b"[[1, 2], [3, 4]]", accept=NPY))
        single = loaded(await on.answer("/predict", b"[1, 2]", accept=NPY))
        assert loaded(await on.answer("/arrays", b"[[1, 2], [3, 4]]", accept="text/html")).tolist() == [3, 7]

    for array in (one, many, first, of_json, single):
        assert array.dtype == "<f4"
    assert (one.tolist(), single.tolist()) == ([2, 4], [2, 4])
    assert many.tolist() == of_json.tolist() == [[2, 4], [6, 8]]
    assert first.tolist() == [[2, 4]]


async def test_files_are_answered_with_json_unless_files_are_asked_for(tmp_path: Path) -> None:
    async with working(tmp_path) as on:
        asking = on.ask("/predict", npy([[1, 2], [3, 4]]), content_type=NPY)
        [batch] = await on.work()
        reply = await asking

    assert (batch.forms, batch.rows, batch.accept) == ((TensorForm("FP32", (2,)),), [2], "")
    assert batch.raw is None
    assert (reply.headers["content-type"], reply.json()) == (JSON, [[2, 4], [6, 8]])


@pytest.mark.parametrize(
    ("path", "body", "content_type", "status", "says"),
    [
        ("/predict", b"[1, 2]", NPY, 400, ""),
        ("/predict", npy([1]), JSON, 400, ""),
        ("/predict", npy([1, 2])[:-1], NPY, 400, ""),
        ("/predict", npy(["a"], "U1"), NPY, 400, ""),
        ("/predict", npy([1, 2, 3]), NPY, 400, "a row must have shape (2,), got rows of shape (3,)"),
        ("/predict", npy([1, 2]), CSV, 415, "'text/csv' is not accepted; send application/json or " + NPY),
        ("/responses", npy([1, 2]), NPY, 415, f"{NPY!r} is not accepted; send application/json"),
    ],
)
async def test_what_is_no_such_file_is_refused(
    tmp_path: Path, path: str, body: bytes, content_type: str, status: int, says: str
) -> None:
    """The gateway rejects it; no worker receives it."""
    async with working(tmp_path) as on:
        assert says in problem(await on.ask(path, body, content_type=content_type), status)
        assert await on.counted(path[1:]) == {str(status): 1}


async def test_a_table_is_csv_or_json(tmp_path: Path) -> None:
    """The API's first offer is the default; each response has one content type."""
    async with working(tmp_path) as on:
        busy = on.ask("/table", b"0")
        await turns(50)
        asking = [on.ask("/table", body) for body in (b"1", b"[2, 3]", b"[4]")]
        asking.append(on.ask("/table", b"[5, 6]", accept=JSON))
        asking.append(on.ask("/table", b"7", accept="text/csv;q=0.5, application/json;q=0.4"))
        await turns(50)
        batches = await on.work(3)
        await busy
        *tables, of_json, last = await asyncio.gather(*asking)

    assert [(batch.accept, batch.rows) for batch in batches[1:]] == [(CSV, [1, 2, 1, 1]), ("", [2])]
    assert [table.text for table in tables] == [
        "n,half\r\n1,0.5\r\n",
        "n,half\r\n2,1.0\r\n3,1.5\r\n",
        "n,half\r\n4,2.0\r\n",
    ]
    assert {table.headers["content-type"] for table in (*tables, last)} == {CSV}
    assert of_json.headers["content-type"] == JSON
    assert of_json.json() == [{"n": 5, "half": 2.5}, {"n": 6, "half": 3}]


async def test_a_response_reaches_only_its_client(tmp_path: Path) -> None:
    """The handler's status, headers and body are sent, and the status is counted."""
    async with working(tmp_path) as on:
        busy = on.ask("/responses", b'"row"')
        await turns(50)
        asking = {name: on.ask("/responses", json.dumps(name).encode()) for name in RESPONSES}
        await turns(50)
        _, batch = await on.work(2)
        await busy
        replies = {name: await reply for name, reply in asking.items()}
        counted = await on.counted("responses")

    assert batch.rows == [1] * len(RESPONSES)
    assert {
        name: (reply.status_code, reply.headers["content-type"], reply.content)
        for name, reply in replies.items()
    } == {
        "created": (201, JSON, b'{"id":7}'),
        "page": (200, "text/html", b"<p>"),
        "gone": (410, "text/plain; charset=utf-8", b"gone"),
        "lost": (404, JSON, b'{"id":7}'),
        "blank": (409, "application/octet-stream", b""),
        "empty": (204, "application/octet-stream", b""),
        "raw": (200, "application/octet-stream", b"\0\xff"),
        "row": (200, JSON, b'{"a":1}'),
    }
    assert replies["created"].headers["location"] == "/7"
    assert replies["created"].headers.get_list("x-note") == ["é"]
    assert {name for name, reply in replies.items() if "location" in reply.headers} == {"created"}
    assert {name for name, reply in replies.items() if "content-length" not in reply.headers} == {"empty"}
    assert {reply.headers["x-batch-size"] for reply in replies.values()} == {"8"}
    assert counted == {"200": 4, "201": 1, "204": 1, "404": 1, "409": 1, "410": 1}


def in_protocol(version: str, name: str) -> tuple[str, bytes]:
    """Return path and body of a request for one of the responses, in V1 or V2."""
    if version == "v1":
        return "/v1/models/kinds.responses:predict", json.dumps({"instances": [name]}).encode()
    tensor = {"name": "x", "shape": [1], "datatype": "BYTES", "data": [name]}
    return "/v2/models/kinds.responses/infer", json.dumps({"inputs": [tensor]}).encode()


WORDLESS = "which this protocol cannot carry; use the API's own route"


@pytest.mark.parametrize(
    ("name", "status", "error"),
    [
        ("gone", 410, "gone"),
        ("lost", 404, '{"id":7}'),
        ("blank", 409, "the handler returned status 409 with application/octet-stream"),
        ("raw", 500, f"the handler returned application/octet-stream, {WORDLESS}"),
        ("created", 500, f"the handler returned {JSON}, {WORDLESS}"),
    ],
)
@pytest.mark.parametrize("version", ["v1", "v2"])
async def test_other_protocols_carry_only_errors_of_whole_answers(
    tmp_path: Path, version: str, name: str, status: int, error: str
) -> None:
    """Errors keep their status; for other responses, clients get 500 with the content type."""
    async with working(tmp_path) as on:
        path, body = in_protocol(version, name)
        reply = await on.answer(path, body, content_type=JSON)

        assert (reply.status_code, reply.json()) == (status, {"error": error})
        assert await on.counted("responses") == {str(status): 1}


NUMBERS = make_codec({"kind": "ndarray", "shape": [2]})
TYPE, TAKES = b"Content-Type", b"ACCEPT"


@pytest.mark.parametrize(
    ("headers", "accept"),
    [
        ([], ""),
        ([(TYPE, b"application/json")], ""),
        ([(TYPE, b"Application/JSON; charset=utf-8"), (TAKES, b"*/*")], ""),
        ([(TAKES, b"application/json")], ""),
        ([(TAKES, b"text/csv")], CSV),
    ],
)
def test_only_those_who_take_text_of_another_kind_have_batches_of_their_own(
    headers: list[tuple[bytes, bytes]], accept: str
) -> None:
    dialect = Native(NUMBERS, offers=(JSON, NPY, CSV))

    kept = dialect.keep(headers, b"/x?y=1")

    assert bool(kept) == bool(accept)
    asked = dialect.read(b"[1, 2]", kept)
    assert asked == replace(NUMBERS.decode(b"[1, 2]", JSON), accept=accept)


def test_files_share_batches_with_json() -> None:
    dialect = Native(NUMBERS, offers=(JSON, NPY))
    as_json = dialect.read(b"[1.0, 2.0]", ())

    for kind, body in ((NPY, npy([1, 2])), (JSON, b"[1.0, 2.0]")):
        for takes, raw in ((b"*/*", ""), (b"text/html, application/x-npy;q=0.1", "npy")):
            asked = dialect.read(body, dialect.keep([(TYPE, kind.encode()), (TAKES, takes)], b"/"))

            assert asked == replace(as_json, body=asked.body, form=asked.form, raw=raw)
            assert asked.form == (TensorForm("FP32", (2,)) if kind == NPY else None)


AS_OPENAI = service(ApiDescription(name="echo", route="/v1/echo", input={"kind": "json"}, errors="openai"))


def openai_error(reply: httpx.Response, status: int, kind: str, code: str | None = None) -> str:
    """Return the message of an error in OpenAI's format; fail if the reply is not one of that status."""
    assert (reply.status_code, reply.headers["content-type"]) == (status, JSON)
    error: dict[str, str] = reply.json()["error"]
    message = error["message"]
    assert error == {"message": message, "type": kind, "param": None, "code": code}
    return message


@pytest.mark.parametrize(
    ("body", "content_type", "status", "says"),
    [
        (b"{", JSON, 400, "the body is not valid JSON: "),
        (b"1", CSV, 415, "content type 'text/csv' is not accepted; "),
        (b'"%b"' % (b"x" * 200), JSON, 413, "the body "),
    ],
)
async def test_the_gateways_errors_are_in_the_format_of_the_api(
    tmp_path: Path, body: bytes, content_type: str, status: int, says: str
) -> None:
    async with gateway(tmp_path, max_body_bytes=100) as stage:
        await stage.worker(serves=AS_OPENAI)
        reply = await stage.http.post("/v1/echo", content=body, headers={"content-type": content_type})

    assert openai_error(reply, status, "invalid_request_error").startswith(says)


async def test_a_refusal_is_in_the_format_of_the_api(tmp_path: Path) -> None:
    """It keeps its header, which clients obey."""
    async with gateway(tmp_path) as stage:
        (await stage.connect()).send(Hello(index=0, launch=1, service=AS_OPENAI))
        await stage.service.events.described
        reply = await stage.http.post("/v1/echo", json=1)

    assert openai_error(reply, 503, "server_error", "no_worker") == "no worker is ready"
    assert reply.headers["retry-after"] == "1"


async def test_the_handlers_errors_are_in_the_format_of_the_route(tmp_path: Path) -> None:
    """Clients of another protocol get that protocol's errors."""
    async with gateway(tmp_path) as stage:
        worker = await stage.worker(serves=AS_OPENAI)

        async def reply(path: str, body: object, status: int) -> httpx.Response:
            asking = stage.post(path, body)
            batch, _ = await worker.batch()
            worker.answer(batch, [b"too long"], statuses=[status])
            return await asking

        rejected = await reply("/v1/echo", 1, 422)
        failed = await reply("/v1/echo", 1, 500)
        model = await reply("/v1/models/fake:predict", {"instances": [1]}, 422)

    assert openai_error(rejected, 422, "invalid_request_error") == "too long"
    assert openai_error(failed, 500, "server_error") == "too long"
    assert (model.status_code, model.json()) == (422, {"error": "too long"})
