"""The headers that every route of batched requests reads."""

import math

import pytest

from uncork_gateway.errors import BadRequest
from uncork_gateway.headers import Header
from uncork_gateway.requests.head import Head, read_head


def head_of(*headers: Header, fair_by: bytes | None = None) -> Head:
    return read_head(headers, b"/predict?x=1", max_body_bytes=100, fair_by=fair_by)


def test_the_clients_timeout_is_in_milliseconds() -> None:
    assert head_of((b"X-Request-Timeout-Ms", b"250.5")).timeout_s == 0.2505
    assert head_of((b"x-request-timeout-ms", b"inf")).timeout_s == math.inf


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
