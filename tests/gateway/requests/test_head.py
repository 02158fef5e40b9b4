"""The headers that every route of batched requests reads."""

from __future__ import annotations

import json
import logging
import math

import pytest

from tests.gateway.client import JSON, Connection, request
from tests.gateway.proxy_stage import merging, rows_body
from tests.gateway.running import turns
from tests.gateway.stage import Stage, detail
from uncork_gateway.dialects.base import HandlerResult
from uncork_gateway.errors import BadRequest
from uncork_gateway.headers import Header
from uncork_gateway.requests.head import Head, read_head


def head_of(*headers: Header, fair_by: bytes | None = None) -> Head:
    return read_head(headers, b"/predict?x=1", max_body_bytes=100, fair_by=fair_by)


def test_the_clients_timeout_is_in_milliseconds() -> None:
    assert head_of((b"X-Request-Timeout-Ms", b"250.5")).timeout_s == 0.2505
    for for_ever in (b"inf", b"1e300"):
        assert head_of((b"x-request-timeout-ms", for_ever)).timeout_s == math.inf


@pytest.mark.parametrize("value", [b"", b"0", b"-1", b"nan", b"soon", b"1 s", b"\xff"])
def test_a_wrong_timeout_is_refused(value: bytes) -> None:
    head = head_of((b"x-request-timeout-ms", value))

    assert isinstance(head.rejection, BadRequest)
    assert repr(value.decode("latin-1")) in str(head.rejection)


def test_encodings_are_joined_in_order_without_identity() -> None:
    head = head_of(
        (b"content-encoding", b"GZIP"), (b"content-encoding", b"identity"), (b"content-encoding", b"br")
    )

    assert head.encoding == b"gzip, br"


def test_only_100_continue_is_an_expectation() -> None:
    assert head_of((b"expect", b"100-Continue")).expects_continue
    assert not head_of((b"expect", b"200-ok")).expects_continue


def test_the_flow_is_the_first_value_of_the_named_header() -> None:
    headers = (b"X-Tenant", b"a"), (b"x-tenant", b"b")

    assert head_of(*headers).flow is None
    assert head_of(*headers, fair_by=b"x-tenant").flow == b"a"
    assert head_of(fair_by=b"x-tenant").flow is None


def test_headers_of_the_trace_keep_their_values() -> None:
    head = head_of((b"Traceparent", b"00-A"), (b"x-other", b"1"), (b"TraceState", b"k=V"))

    assert head.trace == ((b"traceparent", b"00-A"), (b"tracestate", b"k=V"))


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
