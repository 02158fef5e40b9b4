"""Mutations of valid calls over gRPC, decided by the given random generator only."""

import zlib
from random import Random
from typing import Any, NamedTuple

from google.protobuf.message import Message

from benchmarks.fuzz.mutations import changed_bytes
from benchmarks.fuzz.seeds import CallSeed
from benchmarks.harness.grpc_wire import GrpcWire, Header, call_fields, prefixed
from uncork_gateway.grpc.http2 import frames

_INTEGERS = (
    0, 1, -1, 2, 63, 127, 128, 300, 2**31 - 1, -(2**31), 2**32 - 1, 2**40, 2**63 - 1, -(2**63),
    2**64 - 1,
)  # fmt: skip
_FLOATS = (0.0, -0.0, 1.5, 1e308, -1e308, float("inf"), float("nan"), 1e-320)
_TEXTS = (
    "", "x", "\0", "1", "01", "-1", "FP32", "BYTES", "INT64", "BF16", "digits", "digits.predict", "wine",
    "é" * 3, "\U0001f600", "%s", "../", "9" * 5000, "A" * 5000, "output-0",
    "inference.ModelInferRequest",
)  # fmt: skip
_BYTES = (b"", b"\0", b"\xff" * 9, b"\x01\0\0\0a", b"\xff\xff\xff\xff", b"[" * 2000, b"\0" * 512)
_WIRE = (
    b"\x0b", b"\x0c", b"\x0b" * 200, b"\x08" + b"\xff" * 10, b"\x0a\xff\xff\xff\xff\x0f", b"\x00\x01",
    b"\x0f", b"\xfa\xff\xff\xff\x0f\x01x", b"\x2a\x00", b"\x3a\x04\0\0\0\0", b"\x0a\x02\xc3\x28",
)  # fmt: skip
"""Fields that no message has, or of another type: groups, varints without end, lengths beyond the end."""
_TIMEOUTS = (
    b"1n", b"50u", b"1m", b"20m", b"5S", b"1H", b"99999999H", b"0S", b"00000000S", b"123456789S", b"-1S",
    b"1s", b"1", b"S", b"", b" 1S", b"1.5S", b"\xb2S", b"never", b"9" * 5000 + b"S",
)  # fmt: skip
_LENGTHS = (b"0", b"-1", b"7", b"99999999999999999999", b"9" * 5000, b"", b"x", b"+5", b"1_0")
_TYPES = (
    b"application/grpc+proto", b"application/grpc;x=y", b"application/grpc+json", b"application/grpcx",
    b"", b"application/grpc-web", b"APPLICATION/GRPC", b"text/html", b"\xff", b"application/json",
)  # fmt: skip
_ENCODINGS = (b"gzip", b"deflate", b"identity", b"br", b"", b"GZIP", b"gzip, gzip", b"\xff", b"x" * 3000)
_FIELDS = (
    (b"traceparent", b"00-1"), (b"traceparent", b"00-" + b"0" * 32 + b"-" + b"0" * 16 + b"-01"),
    (b"x-api-key", b"\xff"), (b"authorization", b"Bearer"), (b"x-bin", b"AAE="), (b"x-bin", b"*"),
    (b"", b"x"), (b"X-Upper", b"1"), (b"x y", b"1"), (b"x", b"a\r\nb"), (b"x", b"a\0b"),
    (b"x", b"z" * 6000), (b"te", b"gzip"), (b":path", b"/again"), (b":late", b"1"),
    (b"connection", b"close"), (b"transfer-encoding", b"chunked"), (b"host", b"fuzz"),
    (b"cookie", b"a=b"), (b"user-agent", b"\xf0\x9f"), (b"grpc-tags-bin", b""),
    (b"grpc-previous-rpc-attempts", b"-1"), (b"grpc-accept-encoding", b"\0"),
)  # fmt: skip
_METHODS = (b"GET", b"PUT", b"", b"post", b"CONNECT")
_MAX_DEPTH = 4
_WBITS = {b"gzip": 31, b"deflate": 15}


class MutatedCall(NamedTuple):
    """A call as it is sent.

    Attributes:
        number: of its stream.
        path: of the method.
        written: its frames, of which each by itself is valid.
        ends: whether the server must end it.
        has_odd_head: whether more than its messages differs from a valid call.
    """

    number: int
    path: bytes
    written: list[bytes]
    ends: bool
    has_odd_head: bool


def mutated_call(seed: CallSeed, random: Random, wire: GrpcWire) -> MutatedCall:
    """Return a call whose messages, head or framing of messages are wrong."""
    encoding = random.choice(tuple(_WBITS)) if random.random() < 0.2 else b""
    more = [(b"grpc-encoding", encoding)] if encoding else []
    fields = call_fields(seed.path, *more)
    has_odd_head = random.random() < 0.3
    for _ in range(random.choice((1, 1, 2)) if has_odd_head else 0):
        _change_fields(fields, random)
    data = _messages(seed, random, encoding)
    if random.random() < 0.15:
        data = changed_bytes(data, random)
    number, opened = wire.head(fields, ends=not data and random.random() < 0.5)
    if not data and opened[4] & frames.END_STREAM:
        return MutatedCall(number, seed.path, [opened], seed.ends, has_odd_head)
    ends = random.random() < 0.95
    written = [opened, *_pieces(number, data, random)]
    if ends:
        written.append(frames.frame(frames.DATA, frames.END_STREAM, number))
    elif random.random() < 0.5:
        written.append(frames.reset(number, random.choice((0, 7, 8, 99))))
    return MutatedCall(number, seed.path, written, ends and seed.ends, has_odd_head)


def _messages(seed: CallSeed, random: Random, encoding: bytes) -> bytes:
    """Return the messages of a call with their prefixes; some are changed, missing or too many."""
    chosen = list(seed.messages)
    match random.randrange(20):
        case 0:
            chosen = []
        case 1:
            chosen *= 2
        case 2:
            random.shuffle(chosen)
    data = b""
    for each in chosen:
        body = _body(each, random)
        flag = int(bool(encoding) and random.random() < 0.9)
        if flag:
            compressor = zlib.compressobj(wbits=_WBITS[encoding])
            body = compressor.compress(body) + compressor.flush()
            if random.random() < 0.3:
                body = changed_bytes(body, random)
        if random.random() < 0.03:
            flag = random.choice((1, 2, 255))
        data += prefixed(body, flag=flag)
    return data


def _body(message: Message, random: Random) -> bytes:
    chance = random.random()
    if chance < 0.1:
        return message.SerializeToString()
    if chance < 0.6:
        changed = type(message)()
        changed.CopyFrom(message)
        for _ in range(random.choice((1, 1, 2, 3))):
            change_message(changed, random)
        return changed.SerializeToString()
    written = message.SerializeToString()
    if chance < 0.75:
        return random.choice((written + random.choice(_WIRE), random.choice(_WIRE) + written))
    for _ in range(random.choice((1, 1, 2, 4))):
        written = changed_bytes(written, random)
    return written


def change_message(message: Any, random: Random, depth: int = _MAX_DEPTH) -> None:
    """Change, add or remove the value of a field, or of a message in it."""
    have = [field.name for field, _ in message.ListFields()]
    every = [field.name for field in message.DESCRIPTOR.fields]
    if not every:
        return
    name = random.choice(have if have and random.random() < 0.8 else every)
    field, value = message.DESCRIPTOR.fields_by_name[name], getattr(message, name)
    if random.random() < 0.1:
        message.ClearField(name)
    elif hasattr(value, "keys"):
        _change_map(value, random, depth)
    elif hasattr(value, "extend"):
        _change_items(field, value, random, depth)
    elif isinstance(value, Message):
        _change_inner(value, random, depth)
    else:
        setattr(message, name, _value(field, random))


def _change_inner(message: Message, random: Random, depth: int) -> None:
    message.SetInParent()
    if depth:
        change_message(message, random, depth - 1)


def _change_map(values: Any, random: Random, depth: int) -> None:
    """Change a map from texts to messages."""
    name = random.choice([*values, random.choice(_TEXTS)])
    if name in values and random.random() < 0.2:
        del values[name]
    else:
        _change_inner(values[name], random, depth)


def _change_items(field: Any, items: Any, random: Random, depth: int) -> None:
    at = random.randrange(len(items)) if items else 0
    if items and random.random() < 0.3:
        del items[at : at + random.choice((1, 1, 1000))]
    elif field.message_type is not None:
        inner = items[at] if items and random.random() < 0.7 else items.add()
        if items and random.random() < 0.2:
            inner.CopyFrom(items[0])
        _change_inner(inner, random, depth)
    elif items and random.random() < 0.6:
        items[at] = _value(field, random)
    else:
        items.extend([_value(field, random)] * random.choice((1, 2, 300)))


def _value(field: Any, random: Random) -> Any:
    match field.cpp_type:
        case field.CPPTYPE_STRING:
            return random.choice(_BYTES if field.type == field.TYPE_BYTES else _TEXTS)
        case field.CPPTYPE_BOOL:
            return random.random() < 0.5
        case field.CPPTYPE_FLOAT | field.CPPTYPE_DOUBLE:
            return random.choice(_FLOATS)
        case field.CPPTYPE_INT32 | field.CPPTYPE_ENUM:
            return random.choice([each for each in _INTEGERS if -(2**31) <= each < 2**31])
        case field.CPPTYPE_UINT32:
            return random.choice([each for each in _INTEGERS if 0 <= each < 2**32])
        case field.CPPTYPE_INT64:
            return random.choice([each for each in _INTEGERS if each < 2**63])
        case _:
            return random.choice([each for each in _INTEGERS if each >= 0])


def _change_fields(fields: list[Header], random: Random) -> None:
    """Change a head, in place."""
    at = random.randrange(len(fields))
    name, value = fields[at]
    match random.randrange(9):
        case 0 | 1:
            fields.append((b"grpc-timeout", random.choice(_TIMEOUTS)))
        case 2:
            fields.append((b"grpc-encoding", random.choice(_ENCODINGS)))
        case 3:
            fields.append((b"content-length", random.choice(_LENGTHS)))
        case 4:
            fields[5] = (b"content-type", random.choice(_TYPES))
        case 5:
            fields[0] = (b":method", random.choice(_METHODS))
        case 6:
            fields[2] = (b":path", changed_bytes(fields[2][1], random))
        case 7:
            fields[at] = (name, changed_bytes(value, random)[:6000])
        case _:
            fields.append(random.choice(_FIELDS))


def _pieces(number: int, data: bytes, random: Random) -> list[bytes]:
    """Return DATA frames of any sizes, some of them padded."""
    count = random.choice((0, 0, 1, 3))
    cuts = sorted(random.randrange(len(data) + 1) for _ in range(count))
    written = []
    for start, end in zip([0, *cuts], [*cuts, len(data)], strict=True):
        for at in range(start, end, frames.MAX_FRAME_BYTES - 256):
            piece = data[at : min(end, at + frames.MAX_FRAME_BYTES - 256)]
            if random.random() < 0.05:
                padding = random.randrange(256)
                padded = bytes((padding,)) + piece + bytes(padding)
                written.append(frames.frame(frames.DATA, frames.PADDED, number, padded))
            else:
                written.append(frames.frame(frames.DATA, 0, number, piece))
    return written
