"""Reading header blocks: what is remembered, and what gRPC reads in them."""

import math

import pytest
from hpack import Encoder

from tests.gateway.grpc.http2.peer import headers
from uncork_gateway.grpc.http2.heads import HeadReader, read_head
from uncork_gateway.grpc.statuses import Code, code_of
from uncork_gateway.headers import Header


class Client:
    """Encodes heads for a reader, and counts those that had to be decoded."""

    def __init__(self) -> None:
        self.encoder = Encoder()
        self.reader = HeadReader(max_fields=100)
        self.decoded = 0
        decode = self.reader.decode

        def counting(block: bytes) -> list[Header]:
            self.decoded += 1
            return decode(block)

        self.reader.decode = counting  # type: ignore[method-assign]

    def send(self, *more: Header, indexed: bool = True, admitted: bool = True) -> dict[bytes, bytes]:
        """Send a head; returns its metadata as it was read."""
        block = self.encoder.encode(headers())
        block += b"".join([self.encoder.add(each, sensitive=not indexed, huffman=True) for each in more])
        metadata = dict(self.reader.read(block).metadata)
        if admitted:
            self.reader.admitted()
        return metadata


def test_a_block_is_decoded_until_it_has_come_twice_without_a_change() -> None:
    client = Client()
    for _ in range(100):
        assert client.send((b"x", b"1")) == {b"x": b"1"}
    assert client.decoded == 3


def test_the_same_bytes_mean_something_else_after_an_insertion() -> None:
    client = Client()
    reference = bytes((0x80 | 62,))  # the newest entry of the dynamic table
    found = []
    static = b"\x83\x86\x84"
    for value in (b"one", b"two"):
        client.reader.read(static + b"\x40\x01x" + bytes((len(value),)) + value)
        for _ in range(3):
            found.append(client.reader.read(static + reference).metadata)
            client.reader.admitted()
    assert found == [((b"x", b"one"),)] * 3 + [((b"x", b"two"),)] * 3


def test_blocks_are_decoded_again_after_a_change_of_the_table_s_size() -> None:
    client = Client()
    for _ in range(5):
        client.send()
    client.encoder.header_table_size = 0
    for _ in range(5):
        assert client.send((b"x", b"1")) == {b"x": b"1"}


def test_trace_ids_do_not_fill_the_memory() -> None:
    client = Client()
    for _ in range(3):
        client.send()
    for number in range(1000):
        trace = (b"traceparent", b"00-%d" % number)
        assert client.send(trace, indexed=False) == {b"traceparent": trace[1]}
    assert len(client.reader.known) == 1
    before = client.decoded
    client.send()
    assert client.decoded == before


def test_what_is_remembered_is_bounded() -> None:
    client = Client()
    for number in range(400):
        for _ in range(3):
            client.send((b"x", b"%d" % number), indexed=False)
    assert 1 < len(client.reader.known) <= 60
    for _ in range(5):
        client.send((b"x", b"y" * 3000), indexed=False)
    assert max(map(len, client.reader.known)) < 1100


def test_what_is_remembered_is_counted_as_decoded() -> None:
    """A field of HPACK's static table has one byte in the block, and many more once it is read."""
    client = Client()
    for number in range(100):
        for _ in range(3):
            block = b"\x83\x86\x84" + b"\x00\x01x\x02%02d" % number + bytes((0x80 | 16,)) * 90
            fields = client.reader.read(block).metadata
            client.reader.admitted()
    size = sum(len(name) + len(value) + 32 for name, value in fields)
    assert 1 <= len(client.reader.known) <= 16 * 1024 // size


def test_heads_that_are_not_admitted_are_not_remembered() -> None:
    client = Client()
    for _ in range(5):
        client.send(admitted=False)
    assert (client.decoded, client.reader.known) == (5, {})


@pytest.mark.parametrize("fields", [100, 101, 400])
def test_the_limit_of_fields(fields: int) -> None:
    reader = HeadReader(max_fields=100)
    block = b"\x83\x86\x84" + bytes((0x80 | 21,)) * (fields - 3)
    head = reader.read(block)
    assert (reader.decoded, head.path) == (fields, b"/")
    if fields <= 100:
        assert head.rejection is None
    else:
        assert head.rejection is not None
        assert code_of(head.rejection) is Code.RESOURCE_EXHAUSTED
        assert "more than 100 fields" in str(head.rejection)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        (b"1H", 3600),
        (b"2M", 120),
        (b"5S", 5),
        (b"100m", 0.1),
        (b"99999999u", 99.999999),
        (b"1n", 1e-9),
        (b"0S", 0),
    ],
)
def test_timeouts(text: bytes, seconds: float) -> None:
    call = read_head(headers(b"/", (b"grpc-timeout", text)))
    assert call.timeout_s == pytest.approx(seconds)
    assert call.rejection is None


@pytest.mark.parametrize("text", [b"", b"5", b"S", b"-1S", b"1.5S", b"5s", b"123456789S", b"5S ,", b"\xb25S"])
def test_malformed_timeouts(text: bytes) -> None:
    call = read_head(headers(b"/", (b"grpc-timeout", text)))
    assert call.rejection is not None
    assert call.rejection.status == 400
    assert call.timeout_s == math.inf


@pytest.mark.parametrize("name", [b"grpc-timeout", b"grpc-encoding"])
def test_long_values_are_quoted_in_part(name: bytes) -> None:
    """A client can repeat them with one byte of HPACK."""
    call = read_head(headers(b"/", (name, b"a" * 4000)))
    assert f"{name.decode()} " in str(call.rejection)
    assert f"'{'a' * 100}'" in str(call.rejection)


def test_metadata_is_what_grpc_does_not_use_itself() -> None:
    more = [
        (b"grpc-encoding", b"GZIP"),
        (b"grpc-accept-encoding", b"gzip"),
        (b"x-bin", b"AAE"),
        (b"spaces", b" a b\t"),
        (b"twice", b"1"),
        (b"twice", b"2"),
    ]
    call = read_head(headers(b"/", *more))
    assert call.encoding == b"gzip"
    assert call.metadata == ((b"x-bin", b"AAE"), (b"spaces", b"a b"), (b"twice", b"1"), (b"twice", b"2"))
