"""Input of clients and handlers cannot become headers or log lines."""

from __future__ import annotations

import json
import logging

import pytest

from tests.gateway.client import JSON, Connection, request
from tests.gateway.proxy_stage import merging, rows_body
from tests.gateway.running import turns
from tests.gateway.stage import Stage, detail
from uncork_gateway.dialects.base import HandlerResult


@pytest.mark.parametrize("mark", ["\r\nx: y", "\n", "\r", "\0"])
@pytest.mark.parametrize("where", ["name", "value", "content type"])
async def test_a_handlers_header_is_one_line(mark: str, where: str) -> None:
    """``Response`` checks this unless it is changed afterwards; then the client gets 500."""
    name, value, content_type = (
        text + (mark + "z" if where == place else "")
        for place, text in (("name", "x"), ("value", "y"), ("content type", "text/x"))
    )

    stage = Stage()
    stage.runner.reply = lambda body: HandlerResult(
        200, b"", content_type=content_type, headers=[("before", "b"), (name, value)]
    )
    assert detail(await stage.reply(b"1"), 500) == "the handler returned a header with a line break or NUL"


@pytest.mark.parametrize(
    "headers",
    [
        [JSON, (b"x-request-timeout-ms", b"<\x80>: y")],
        [(b"content-type", b'te"xt/<\x80>\xff')],
        [JSON, (b"content-encoding", b"<\x80>")],
        [JSON, (b"transfer-encoding", b"<\x80>")],
    ],
)
async def test_what_a_client_said_comes_back_in_bodies_only(headers: list[tuple[bytes, bytes]]) -> None:
    """It is escaped as JSON, never in a header."""
    connection = Connection(Stage().server)
    connection.send(request(b"1", headers=headers))
    await turns()
    [reply] = connection.replies()
    assert reply.status in (400, 415)
    assert json.loads(reply.body)["status"] == reply.status
    assert not any("<" in value for value in reply.headers.values())


@pytest.mark.parametrize(("mark", "status"), [(b"%0d", 200), (b"%1b", 200), (b"%0a", 404)])
async def test_names_of_models_that_are_no_line_are_not_merged(
    mark: bytes, status: int, caplog: pytest.LogCaptureFixture
) -> None:
    """The server may know them; no metric or log line contains one."""
    caplog.set_level(logging.INFO, "uncork")
    target = b"/v1/models/m" + mark + b"error%20all%20is%20lost:predict"

    async with merging(goal_s=1e-9) as (on, model):
        reply = await on.http.post(target.decode(), content=rows_body(1))
        metrics = await on.http.get("/metrics")
        assert reply.status_code == status
        assert "x-batch-id" not in reply.headers
        assert [call.target.lower() for call in model.calls] == [target] * (status == 200)
        assert "is lost" not in metrics.text
    assert not any("is lost" in record.getMessage() for record in caplog.records if "uncork" in record.name)
