"""The access log."""

import logging

import pytest

from tests.gateway.gateway_stage import GatewayStage
from uncork_gateway.headers import printable
from uncork_gateway.telemetry.access_log import log_request


@pytest.mark.parametrize(
    ("path", "shown"),
    [
        (b"/predict?secret=1", "/predict"),
        (b"/pr\xc3\xa4dict", "/prädict"),
        (b"/\xff", "/\\xff"),
        (b"/a\nGET /b 200", "/a\\nGET\\x20/b\\x20200"),
        (b"/\x1b[2J\x7f\t\r\0", "/\\x1b[2J\\x7f\\t\\r\\x00"),
        ("/\u202e\u2028\u200b".encode(), "/\\u202e\\u2028\\u200b"),
        (b"/\xc2\x85", "/\\x85"),
        (b"/" + b"\xff" * 4000, "/" + "\\xff" * 511),
    ],
)
def test_a_path_cannot_forge_a_line(path: bytes, shown: str, caplog: pytest.LogCaptureFixture) -> None:
    """Paths of gRPC calls may have any character."""
    with caplog.at_level(logging.INFO, logger="uncork.access"):
        log_request("POST", path, 200, 0.001, size=3, request_id=b"one")
    [record] = caplog.records
    assert record.getMessage() == f"POST {shown} 200 1.00 ms, 3 bytes, request one"
    assert (record.__dict__["path"], record.__dict__["request"]) == (shown, "one")


async def test_batches_are_logged_while_the_level_is_debug(
    on: GatewayStage, caplog: pytest.LogCaptureFixture
) -> None:
    """A reload may change it."""
    worker = await on.worker()
    for level, lines in ((logging.INFO, 0), (logging.DEBUG, 1), (logging.INFO, 0)):
        caplog.clear()
        caplog.set_level(level, logger="uncork.batches")
        _, reply = await on.echo(worker, "/echo", 1)
        found = [one for one in caplog.records if one.name == "uncork.batches"]
        ids = [one.__dict__["batch"] for one in found]
        assert ids == [reply.headers["x-batch-id"]] * lines


def test_plain_text_stays() -> None:
    assert printable(b"/a b") == "/a b"
