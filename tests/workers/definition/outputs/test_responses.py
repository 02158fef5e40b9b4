"""Validation of Rejected and Response."""

from http import HTTPStatus
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from uncork_workers.definition.outputs.responses import Rejected, Response


@pytest.mark.parametrize("status", [400, 422, 599, HTTPStatus.NOT_FOUND])
def test_a_request_is_rejected_with_an_error(status: int) -> None:
    assert Rejected(status, "no") == Rejected(int(status), "no")


@pytest.mark.parametrize("status", [0, 200, 399, 600, -400, 404.0, "404", None])
def test_a_rejection_has_the_status_of_an_error(status: Any) -> None:
    with pytest.raises(ValueError, match=r"^Rejected: status must be an integer from 400 to 599, got "):
        Rejected(status, "no")


def test_the_detail_of_a_rejection_is_text() -> None:
    """Raised at its creation, not when the batch is encoded."""
    wrong: Any = ValueError("too cold")
    with pytest.raises(ValueError, match=r"^Rejected: detail must be a str, got ValueError\('too cold'\)$"):
        Rejected(400, wrong)


@pytest.mark.parametrize("status", [100, 199, 600, 200.5, "200"])
def test_the_status_of_a_response_is_one(status: Any) -> None:
    """1xx are not final responses."""
    with pytest.raises(ValueError, match=r"^Response: status must be an integer from 200 to 599, got "):
        Response(b"", status)


@pytest.mark.parametrize("name", ["", " ", "x y", "x:", "x\r\nevil", "é", "x\0", b"x", 5])
def test_the_name_of_a_header_is_one(name: Any) -> None:
    with pytest.raises(ValueError, match=r"^Response: .* is not a valid header name$"):
        Response(b"", headers={name: "x"})


@pytest.mark.parametrize("value", ["a\r\nevil: 1", "a\nb", "\r", "a\0", "→", "\x7f", b"x", 5, None])
@pytest.mark.parametrize("where", ["headers", "content_type"])
def test_a_header_is_one_line_of_latin_1(where: str, value: Any) -> None:
    """Otherwise a handler that echoes client input would allow header injection."""
    arguments: dict[str, Any] = {where: {"x-note": value} if where == "headers" else value}
    name = "x-note" if where == "headers" else "content-type"
    with pytest.raises(ValueError, match=f"^Response: header '{name}' must be one line of Latin-1, got "):
        Response(b"", **arguments)


@pytest.mark.parametrize(
    "name",
    [
        *("Content-Type", "content-length", "Transfer-Encoding", "CONNECTION"),
        *("X-Request-Id", "X-Batch-Id", "x-batch-size"),
    ],
)
def test_what_the_gateway_writes_is_not_the_handlers(name: str) -> None:
    """A second content length would allow response splitting."""
    with pytest.raises(ValueError, match=f"^Response: header '{name}' is set by the gateway"):
        Response(b"", headers={name: "1"})


@given(value=st.text(st.characters(max_codepoint=255, exclude_categories=["Cc"])))
def test_any_other_text_of_latin_1_is_a_header(value: str) -> None:
    assert (
        Response(b"", headers={"X-Note": value}).headers["X-Note"].encode("latin-1").decode("latin-1")
        == value
    )


@pytest.mark.parametrize("status", [204, 304])
def test_some_statuses_have_no_body(status: int) -> None:
    """A client would read a body as the start of the next response."""
    for empty in (None, b"", ""):
        assert Response(empty, status).is_bodiless
    bodies: list[Any] = [b"x", "x", {}, 0, []]
    for body in bodies:
        with pytest.raises(ValueError, match=f"^Response: status {status} allows no body$"):
            Response(body, status)
    assert not Response(b"x", 200).is_bodiless
