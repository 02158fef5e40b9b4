"""V2 requests that are rejected or cannot share a call."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.gateway.codecs.bodies import mutated
from tests.gateway.protocols.v2_bodies import HEADER, ints, mergeable, request
from uncork_gateway.errors import BadRequest
from uncork_gateway.protocols.v2 import V2Wire
from uncork_gateway.protocols.wire import Content, Unmergeable

WIRE = V2Wire()
X = b'{"name":"x","shape":[1],"datatype":"INT64","data":[1]}'


def with_header(text: bytes, blocks: bytes, header: bytes | None = None) -> Content:
    """Return a body with bytes after the JSON."""
    return Content(text + blocks, ((HEADER, b"%d" % len(text) if header is None else header),))


def binary_x(size: object, shape: str = "[2]", datatype: str = "INT16") -> bytes:
    """Return the JSON of a request with one binary tensor."""
    parameters = f'"parameters":{{"binary_data_size":{size}}}'
    return f'{{"inputs":[{{"name":"x","shape":{shape},"datatype":"{datatype}",{parameters}}}]}}'.encode()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"", "not valid JSON"),
        (b"{", "not valid JSON"),
        (b"[]", "Expected `object`, got `array`"),
        (b"{}", "'inputs' is missing; the body has no members"),
        (b'{"inputs":{}}', "Expected `array`"),
        (b'{"inputs":[{}]}', "missing required field `name`"),
        (b'{"id":' + b"[" * 100_000, "not valid JSON: .*recursion"),
        (b'{"id":7,"inputs":[%b]}' % X, "id must be a string, got '7'"),
        (b'{"id":"\xff","inputs":[%b]}' % X, "not valid UTF-8"),
        (b'{"parameters":[],"inputs":[%b]}' % X, "parameters must be an object: Expected `object . null`"),
        (b'{"parameters":{"binary_data_output":1},"inputs":[%b]}' % X, "must be true or false, got '1'"),
        (b'{"outputs":{},"inputs":[%b]}' % X, "outputs must be a list .* Expected `array . null`"),
        (b'{"outputs":[{}],"inputs":[%b]}' % X, "missing required field `name`"),
        (b'{"outputs":[{"name":"y","parameters":{"binary_data":0}}],"inputs":[%b]}' % X, "got '0'"),
        (b'{"inputs":[%b]}' % X.replace(b'"x"', b"7"), "Expected `str`, got `int`"),
        (b'{"inputs":[%b]}' % X.replace(b"[1]", b"[1.0]", 1), "Expected `int`, got `float`"),
        (b'{"inputs":[%b]}' % X.replace(b"[1]", b"[-1]", 1), "from 0 to 9223372036854775807, got -1"),
        (b'{"inputs":[%b]}' % X.replace(b"[1]", b"[9223372036854775808]", 1), "got 9223372036854775808"),
        (b'{"inputs":[%b]}' % X.replace(b"[1]", b"[1%b]" % (b",1" * 64), 1), "at most 64 axes, got 65"),
        (b'{"inputs":[%b]}' % X.replace(b"INT64", b"INT128"), "one of BOOL, .*BF16.*, BYTES, got 'INT128'"),
        (b'{"inputs":[%b]}' % X.replace(b'"data":[1]', b'"parameters":{}'), "needs a list in data"),
        (b'{"inputs":[%b]}' % X.replace(b'"data":[1]', b'"data":null'), "needs a list in data"),
        (b'{"inputs":[%b]}' % X.replace(b'"data":[1]', b'"data":"1"'), "needs a list in data"),
        (b'{"inputs":[%b]}' % X.replace(b"[1]}", b"[NaN]}"), "not valid JSON"),
        (b'{"inputs":[%b]}' % X.replace(b"[1]}", b"[-Infinity]}"), "not valid JSON"),
        (
            b'{"inputs":[%b]}' % X.replace(b"[1]}", b"[1,2]}"),
            r"\[1\] of INT64 needs 1 value, got 2",
        ),
        (b'{"inputs":[%b]}' % X.replace(b"[1]}", b"[[1]]}"), "must be nested like its shape"),
        (b'{"inputs":[%b]}' % X.replace(b"[1]}", b"[1,[2]]}"), "the data mixes nested lists and values"),
        (b'{"inputs":[%b]}' % X.replace(b"[1]}", b'[{"a":1}]}'), "got an object"),
        (
            b'{"inputs":[%b]}' % X.replace(b"[1],", b"[2],").replace(b"[1]}", b"[]}"),
            "needs 2 values, got 0",
        ),
        (
            b'{"inputs":[%b]}' % X.replace(b"[1],", b"[2,1],").replace(b"[1]}", b"[[1],[]]}"),
            "must be nested like",
        ),
        (
            b'{"inputs":[%b]}' % X.replace(b"[1],", b"[2,2],").replace(b"[1]}", b"[[1],[2,3,4]]}"),
            "must be nested like",
        ),
        (binary_x(4), "its binary data ends at byte 4, got 0 bytes"),
        (binary_x(4) + bytes(4), "send the length of the JSON in the header Inference-Header-Content-Length"),
    ],
)
def test_a_malformed_request_is_refused(text: bytes, message: str) -> None:
    with pytest.raises(BadRequest, match=message):
        WIRE.parse(Content(text))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (with_header(binary_x(4), b"1234", b"-1"), "must be from 0 to .*, got '-1'"),
        (with_header(binary_x(4), b"1234", b""), "got ''"),
        (with_header(binary_x(4), b"1234", b"ten"), "got 'ten'"),
        (with_header(binary_x(4), b"1234", b"1" * 5000), "got '1111"),
        (with_header(binary_x(4), b"1234", b"\xb2"), "must be from 0 to"),
        (
            with_header(binary_x(4), b"1234", b"%d" % (len(binary_x(4)) + 5)),
            "must be from 0 to",
        ),
        (with_header(binary_x(4), b"1234", b"%d" % (len(binary_x(4)) - 1)), "not valid JSON"),
        (with_header(binary_x(4), b"1234", b"%d" % (len(binary_x(4)) + 1)), "not valid JSON"),
        (with_header(binary_x(4), b"123"), "ends at byte 4, got 3 bytes"),
        (
            with_header(binary_x(4), b"12345"),
            "expected 4 bytes of binary data by the tensors' binary_data_size, got 5",
        ),
        (with_header(binary_x(3), b"123"), "needs 4 bytes, got 3"),
        (with_header(binary_x(0, "[1]"), b""), "needs 2 bytes, got 0"),
        (with_header(binary_x(-1), b""), "at least 0, got '-1'"),
        (with_header(binary_x("4.0"), b"1234"), "got '4.0'"),
        (with_header(binary_x("9" * 5000), b"1234"), "got '9999"),
        (with_header(binary_x('"4"'), b"1234"), "binary_data_size must be a number"),
        (with_header(binary_x(8, datatype="BYTES"), b"\4\0\0\0abcd"), "needs 2 values, got 1"),
        (with_header(binary_x(8, "[1]", "BYTES"), b"\5\0\0\0abcd"), "incomplete"),
        (with_header(binary_x(2, "[1]", "BYTES"), b"\0\0"), "incomplete"),
        (
            with_header(binary_x(4).replace(b'"par', b'"data":[1,2],"par'), b"1234"),
            "has both data and binary_data_size",
        ),
    ],
)
def test_binary_data_that_is_not_what_the_request_says_is_refused(content: Content, message: str) -> None:
    with pytest.raises(BadRequest, match=message):
        WIRE.parse(content)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (with_header(b"", b"1234", b"0"), "raw tensors without JSON"),
        (Content(b'{"inputs":[]}'), "no inputs"),
        (Content(b'{"inputs":[%b]}' % X.replace(b"[1],", b"[],")), "same number of rows"),
        (Content(b'{"inputs":[%b]}' % X.replace(b"[1],", b"[0],").replace(b"[1]}", b"[]}")), "at least 1"),
        (
            Content(b'{"inputs":[%b]}' % X.replace(b"[1],", b"[9,0],").replace(b"[1]}", b"[]}")),
            "no axis of length 0",
        ),
        (request(ints(1), ints(1, 2, name="y")), r"'x' \[1\], 'y' \[2\]"),
        (request(ints(1), parameters={"sequence_id": 7}), "sequence_id"),
        (request(ints(1), parameters={"sequence_start": True}), "sequence_start"),
        (request(ints(1), parameters={"sequence_end": False}), "sequence_end"),
        (
            Content(
                b'{"inputs":[%b]}' % X.replace(b'"data":[1]', b'"parameters":{"shared_memory_region":"r"}')
            ),
            "tensor 'x': shared memory is not supported",
        ),
        (
            request(ints(1), outputs=[{"name": "y", "parameters": {"shared_memory_byte_size": 8}}]),
            "tensor 'y': shared memory",
        ),
        (Content(b'{"inputs":[%b]}' % X.replace(b'"data"', b'"new":1,"data"')), "unknown field `new`"),
    ],
)
def test_what_an_upstream_must_see_as_it_came_shares_no_call(content: Content, message: str) -> None:
    """A server may accept it unbatched."""
    with pytest.raises(Unmergeable, match=message):
        WIRE.parse(content)


@given(data=st.data())
def test_any_bytes_are_a_request_or_refused(data: st.DataObject) -> None:
    """Any body is rejected, or can be merged like any other."""
    content = request(*data.draw(mergeable())[0], id="a")
    damaged = data.draw(st.binary(max_size=30) | mutated(st.just(content.body)))
    header = content.header(HEADER)
    if header is not None:
        header = data.draw(
            st.sampled_from([header, b"%d" % (int(header) + len(damaged) - len(content.body))])
        )
    try:
        one = WIRE.parse(Content(damaged, () if header is None else ((HEADER, header),)))
    except (BadRequest, Unmergeable):
        return
    two = WIRE.parse(WIRE.merge([one, one]))
    assert (two.rows, two.key) == (2 * one.rows, one.key)
    assert [part.rows for part in WIRE.cut(two, one.rows)] == [one.rows, one.rows]
