"""A gateway inside another ASGI application, whose server the tests act as."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.gateway.fake_worker import FakeWorker, json_api, service
from tests.gateway.gateway_stage import GatewayStage, gateway
from tests.gateway.running import turns
from tests.loops import until
from uncork_gateway.mounted import ResponseCutShort, serve_mounted
from uncork_workers.wire.frames import encode_frame
from uncork_workers.wire.messages import AnswerHead, Cancel, Piece, Reply
from uncork_workers.wire.schema import ApiDescription, ApiSettings

ROOT = "/app/models"
HEAD = AnswerHead(status=200, content_type="text/plain")


class Call:
    """One request of a client of the application, and the messages that its server has got."""

    def __init__(
        self,
        on: GatewayStage,
        path: str,
        *body: bytes,
        method: str = "POST",
        headers: Iterable[tuple[bytes, bytes]] = (),
        whole: bool = True,
        client: tuple[str, int] | None = ("127.0.0.1", 1),
        query: bytes = b"",
    ) -> None:
        self.scope = {
            "type": "http",
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": ROOT + path,
            "root_path": ROOT,
            "query_string": query,
            "headers": [(b"host", b"here"), (b"content-type", b"application/json"), *headers],
            "client": client,
        }
        self.inbox: asyncio.Queue[dict[str, Any] | Exception] = asyncio.Queue()
        self.received = 0
        self.sent: list[Any] = []
        self.may_send = asyncio.Event()
        self.may_send.set()
        for number, piece in enumerate(body or (b"",), 1):
            self.more(piece, is_last=whole and number >= len(body))
        self.task = asyncio.create_task(
            serve_mounted(on.gateway.front_end, self.scope, self._next, self._send)
        )

    def more(self, piece: bytes, *, is_last: bool = False) -> None:
        self.inbox.put_nowait({"type": "http.request", "body": piece, "more_body": not is_last})

    def leave(self) -> None:
        self.inbox.put_nowait({"type": "http.disconnect"})

    async def _next(self) -> Any:
        message = await self.inbox.get()
        self.received += 1
        if isinstance(message, Exception):
            raise message
        return message

    async def _send(self, message: Any) -> None:
        await self.may_send.wait()
        self.sent.append(message)

    @property
    def status(self) -> int:
        status: int = self.sent[0]["status"]
        return status

    @property
    def headers(self) -> dict[str, str]:
        pairs = [(name.decode(), value.decode()) for name, value in self.sent[0]["headers"]]
        assert len(dict(pairs)) == len(pairs)
        assert all(name == name.lower() for name, _ in pairs)
        return dict(pairs)

    @property
    def body(self) -> bytes:
        return b"".join(message.get("body", b"") for message in self.sent[1:])

    async def done(self) -> Call:
        """Wait for the response, and check that its messages are one response."""
        await self.task
        assert [message["type"] for message in self.sent] == [
            "http.response.start",
            *["http.response.body"] * (len(self.sent) - 1),
        ]
        assert [message.get("more_body", False) for message in self.sent[1:]] == [
            *[True] * (len(self.sent) - 2),
            False,
        ]
        return self

    def problem(self, status: int) -> str:
        document = json.loads(self.body)
        assert (self.status, document["status"]) == (status, status)
        assert document["request_id"] == self.headers["x-request-id"]
        detail: str = document["detail"]
        return detail


@asynccontextmanager
async def mounted(
    folder: Path, *apis: ApiDescription, **settings: Any
) -> AsyncIterator[tuple[GatewayStage, FakeWorker]]:
    async with gateway(folder, **settings) as on:
        yield on, await on.worker(serves=service(*apis))


def streaming_api() -> ApiDescription:
    return msgspec.structs.replace(json_api("tell", ApiSettings(policy="none")), streams=True)


async def echoed(worker: FakeWorker, call: Call) -> Call:
    batch, payload = await worker.batch()
    worker.answer(batch, [payload])
    return await call.done()


async def test_a_request_is_answered_below_the_path(tmp_path: Path) -> None:
    async with mounted(tmp_path) as (on, worker):
        call = await echoed(worker, Call(on, "/echo", b"[1,", b"2]", headers=[(b"x-request-id", b"mine")]))

        assert (call.status, call.body) == (200, b"[1,2]")
        assert call.headers["content-length"] == "5"
        assert (call.headers["x-request-id"], call.headers["x-batch-size"]) == ("mine", "1")


@pytest.mark.parametrize("status", [204, 304])
async def test_a_status_without_a_body_has_no_length(tmp_path: Path, status: int) -> None:
    async with mounted(tmp_path) as (on, worker):
        call = Call(on, "/echo", b"1")
        batch, _ = await worker.batch()
        reply = Reply(batch.batch, True, 0.001, [status], [1], [(1, 0.001)], content_types=["text/plain"])
        worker.send_bytes(encode_frame(reply, [b"x"]))
        await call.done()
        assert (call.status, call.body) == (status, b"")
        assert "content-length" not in call.headers


@pytest.mark.parametrize("left", ["while it runs", "while it is queued", "before its body is complete"])
async def test_a_client_that_leaves_cancels_its_request(tmp_path: Path, left: str) -> None:
    async with mounted(tmp_path, overrides={"policy": "fixed:60000", "mb_max_batch_size": 2}) as (on, worker):
        calls = [Call(on, "/echo", b"1", whole=left != "before its body is complete")]
        if left == "while it runs":
            calls.append(Call(on, "/echo", b"2"))
            await worker.batch()
        await turns()
        assert on.gateway.front_end.unanswered() == (
            0 if left == "before its body is complete" else len(calls)
        )
        for call in calls:
            call.leave()
            await call.task

        assert [call.sent for call in calls] == [[]] * len(calls)
        assert on.gateway.front_end.unanswered() == 0
        assert on.gateway.front_end.listener.pool.used_bytes == 0
        if left == "while it runs":
            assert isinstance(await worker.next(), Cancel)


async def test_a_server_that_ends_the_task_cancels_the_request(tmp_path: Path) -> None:
    """As a time limit of the application does."""
    async with mounted(tmp_path) as (on, worker):
        call = Call(on, "/echo", b"1")
        await worker.batch()
        call.task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call.task

        assert on.gateway.front_end.unanswered() == 0


async def test_an_error_of_a_middleware_cancels_the_request(tmp_path: Path) -> None:
    async with mounted(tmp_path) as (on, worker):
        call = Call(on, "/echo", b"1")
        await worker.batch()
        call.inbox.put_nowait(ValueError("of the middleware"))
        with pytest.raises(ValueError, match="of the middleware"):
            await call.task

        assert (call.sent, on.gateway.front_end.unanswered()) == ([], 0)


async def test_a_server_that_cannot_send_has_lost_the_client(tmp_path: Path) -> None:
    """As ASGI 2.4 has it."""

    class Lost(Call):
        async def _send(self, message: Any) -> None:
            raise OSError

    async with mounted(tmp_path, streaming_api()) as (on, worker):
        call = Lost(on, "/tell", b"1")
        batch, _ = await worker.batch()
        worker.send(Piece(batch.batch, HEAD), [b"a"])
        await call.task
        assert isinstance(await worker.next(), Cancel)


async def test_a_middleware_may_repeat_the_body(tmp_path: Path) -> None:
    """Some keep it to read it themselves, and never say that the client has left."""

    class Repeating(Call):
        async def _next(self) -> Any:
            return {"type": "http.request", "body": b"3"}

    async with mounted(tmp_path) as (on, worker):
        assert (await echoed(worker, Repeating(on, "/echo"))).body == b"3"


async def test_a_large_body_is_refused_while_it_arrives(tmp_path: Path) -> None:
    async with mounted(tmp_path, max_body_bytes=10) as (on, _):
        call = await Call(on, "/echo", b"12345", b"67890", b"1", b"the rest").done()

        assert call.problem(413) == "the body exceeds the limit of 10 bytes"
        assert call.received == 3
        assert on.gateway.front_end.listener.pool.used_bytes == 0


async def test_a_large_body_is_refused_before_the_client_sends_it(tmp_path: Path) -> None:
    """To receive would ask a client for it that waits."""
    headers = [(b"content-length", b"11"), (b"expect", b"100-continue")]
    async with mounted(tmp_path, max_body_bytes=10) as (on, _):
        call = await Call(on, "/echo", headers=headers).done()
        await turns()
        assert call.problem(413)
        assert call.received == 0


@pytest.mark.parametrize("length", [b"1" * 5000, b"one", b"-1", b""])
async def test_a_server_may_pass_on_wrong_lengths(tmp_path: Path, length: bytes) -> None:
    async with mounted(tmp_path) as (on, worker):
        call = Call(on, "/echo", b"1", headers=[(b"content-length", length)])
        assert (await echoed(worker, call)).body == b"1"


async def test_the_time_of_a_client_counts(tmp_path: Path) -> None:
    async with mounted(tmp_path, overrides={"policy": "fixed:60000"}) as (on, _):
        late = await Call(on, "/echo", b"1", headers=[(b"x-request-timeout-ms", b"20")]).done()
        assert late.status in (503, 504)
        assert json.loads(late.body)["reason"] in ("deadline", "client_deadline")


async def test_clients_are_known_by_their_addresses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with mounted(tmp_path) as (on, worker):
        dispatcher, sources = on.service.batching.dispatcher, []
        submit = dispatcher.submit

        def noting(submission: Any) -> None:
            sources.append(submission.source)
            submit(submission)

        monkeypatch.setattr(dispatcher, "submit", noting)
        for client in [("a", 1), ("a", 2), ("a", 1), None, None]:
            await echoed(worker, Call(on, "/echo", b"1", client=client))
        assert sources[0] == sources[2]
        assert len({*sources}) == 4


async def test_a_stream_goes_through_piece_by_piece(tmp_path: Path) -> None:
    async with mounted(tmp_path, streaming_api()) as (on, worker):
        call = Call(on, "/tell", b"1")
        batch, _ = await worker.batch()
        worker.send(Piece(batch.batch, HEAD), [b"one "])
        await until(lambda: len(call.sent) == 2)
        assert call.body == b"one "
        worker.send(Piece(batch.batch), [b"two"])
        await until(lambda: len(call.sent) == 3)
        worker.answer(batch, [b""], chunks=[])
        await call.done()

        assert (call.status, call.body) == (200, b"one two")
        assert call.headers["content-type"] == "text/plain"
        assert {"transfer-encoding", "content-length"}.isdisjoint(call.headers)


async def test_a_client_that_leaves_a_stream_stops_the_worker(tmp_path: Path) -> None:
    async with mounted(tmp_path, streaming_api()) as (on, worker):
        call = Call(on, "/tell", b"1")
        batch, _ = await worker.batch()
        worker.send(Piece(batch.batch, HEAD), [b"one "])
        await until(lambda: len(call.sent) == 2)
        call.leave()
        await call.task
        assert isinstance(await worker.next(), Cancel)


async def test_a_stream_that_ends_early_is_incomplete_for_the_server(tmp_path: Path) -> None:
    """What was sent before that goes through."""
    async with mounted(tmp_path, streaming_api()) as (on, worker):
        call = Call(on, "/tell", b"1")
        batch, _ = await worker.batch()
        worker.send(Piece(batch.batch, HEAD), [b"one "])
        worker.close()
        with pytest.raises(ResponseCutShort):
            await call.task
        assert call.body == b"one "
        assert all(message["more_body"] for message in call.sent[1:])


async def test_a_client_that_does_not_read_its_stream_is_cut_off(tmp_path: Path) -> None:
    async with mounted(tmp_path, streaming_api(), max_body_bytes=100) as (on, worker):
        call = Call(on, "/tell", b"1")
        call.may_send.clear()
        batch, _ = await worker.batch()
        worker.send(Piece(batch.batch, HEAD), [b"-" * 101])
        worker.send(Piece(batch.batch), [b"-"])
        assert isinstance(await worker.next(), Cancel)
        call.may_send.set()
        with pytest.raises(ResponseCutShort):
            await call.task


async def test_pages_are_below_the_path(tmp_path: Path) -> None:
    async with mounted(tmp_path) as (on, _):

        async def page(path: str, **options: Any) -> Call:
            return await Call(on, path, method="GET", **options).done()

        html = (await page("/", headers=[(b"accept", b"text/html")])).body.decode()
        assert f'<span class="origin">http://here{ROOT}</span>/echo' in html
        document = json.loads((await page("/openapi.json")).body)
        assert document["servers"] == [{"url": ROOT}]
        assert "/echo" in document["paths"]
        assert b"uncork_requests_total" in (await page("/metrics")).body
        assert "services" in json.loads((await page("/status")).body)
        ready = await page("/readyz", headers=[(b"x-request-id", b"probe")])
        assert (ready.status, ready.headers["x-request-id"]) == (200, "probe")


@pytest.mark.parametrize(
    ("method", "path", "status", "detail"),
    [
        ("POST", "/ecko", 404, f"no route for {ROOT}/ecko; did you mean POST {ROOT}/echo?"),
        ("POST", "/zzzzzz", 404, f"no route for {ROOT}/zzzzzz; available APIs: POST {ROOT}/echo"),
        ("GET", "/echo", 405, f"GET is not allowed for {ROOT}/echo; use POST"),
    ],
)
async def test_errors_name_paths_as_clients_write_them(
    tmp_path: Path, method: str, path: str, status: int, detail: str
) -> None:
    async with mounted(tmp_path) as (on, _):
        assert (await Call(on, path, method=method).done()).problem(status) == detail


async def test_errors_of_model_protocols_name_paths_as_clients_write_them(tmp_path: Path) -> None:
    async with mounted(tmp_path) as (on, _):
        call = await Call(on, "/v1/models/fake:classify").done()
        assert f"POST to {ROOT}/v1/models/fake:predict" in json.loads(call.body)["error"]


@pytest.mark.parametrize(("setting", "status"), [(False, 403), (True, 400)])
async def test_services_are_loaded_only_if_the_application_allows_it(
    tmp_path: Path, setting: bool, status: int
) -> None:
    """No repository is here: where clients may, they learn that."""
    async with mounted(tmp_path, open_repository=setting) as (on, _):
        call = await Call(on, "/v2/repository/models/fake/unload").done()
        assert call.status == status


@pytest.mark.parametrize("dashboard", [False, True])
async def test_the_dashboard_can_be_left_out(tmp_path: Path, dashboard: bool) -> None:
    async with mounted(tmp_path, dashboard=dashboard) as (on, _):
        home = await Call(on, "/", method="GET", headers=[(b"accept", b"text/html")]).done()
        page = await Call(on, "/dashboard", method="GET").done()
        events = await Call(on, "/dashboard/events", method="HEAD").done()

        assert (b'href="dashboard"' in home.body) == dashboard
        assert [page.status, events.status] == ([200, 200] if dashboard else [404, 404])
