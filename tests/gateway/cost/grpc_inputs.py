"""What clients send to the gRPC port, in any size; see :mod:`tests.gateway.cost.http_inputs`."""

from __future__ import annotations

import gzip
import struct
from collections.abc import Callable, Mapping

from hpack import Encoder

from tests.gateway.cost.http_inputs import Input
from tests.gateway.grpc.http2.peer import START, gzipped, headers, message
from uncork_gateway.grpc.http2 import frames
from uncork_gateway.grpc.messages import message as kind
from uncork_gateway.grpc.protocols.values import varint

INFER = b"/inference.GRPCInferenceService/ModelInfer"
STREAM = b"/inference.GRPCInferenceService/ModelStreamInfer"
PREDICT = b"/tensorflow.serving.PredictionService/Predict"
REFLECTION = b"/grpc.reflection.v1.ServerReflection/ServerReflectionInfo"
WATCH = b"/grpc.health.v1.Health/Watch"
_InferRequest = kind("inference.ModelInferRequest")
_PredictRequest = kind("tensorflow.serving.PredictRequest")
_STREAMS = 1000
"""The most open streams of a connection."""


def block(path: bytes = INFER, *more: tuple[bytes, bytes], table: bool = False) -> bytes:
    """Return a header block, whose fields go into the dynamic table if ``table``."""
    encoder = Encoder()
    if not table:
        encoder.header_table_size = 0
    encoded: bytes = encoder.encode(headers(path, *more))
    return encoded


def opened(number: int, path: bytes = INFER, *more: tuple[bytes, bytes], ends: bool = False) -> bytes:
    return frames.headers(number, block(path, *more), ends=ends)


def data(number: int, content: bytes, *, ends: bool = True, size: int = frames.MAX_FRAME_BYTES) -> bytes:
    """Return content in DATA frames of a size."""
    pieces = [content[at : at + size] for at in range(0, len(content), size)] or [b""]
    last = len(pieces) - 1
    return b"".join(
        [
            frames.frame(frames.DATA, frames.END_STREAM if ends and at == last else 0, number, piece)
            for at, piece in enumerate(pieces)
        ]
    )


def asked(content: bytes, path: bytes = INFER, *, size: int = frames.MAX_FRAME_BYTES) -> Input:
    """Return a call with one message."""
    return Input(opened(1, path) + data(1, message(content), size=size), before=START)


def many(one: Callable[[int], bytes], times: int, *, streams: int = 0, path: bytes = STREAM) -> Input:
    """Return frames, each from a number of a stream, after some streams are open."""
    before = START + b"".join([opened(2 * number + 1, path) for number in range(streams)])
    sent = [one(2 * (number % streams) + 1 if streams else 2 * number + 1) for number in range(times)]
    return Input(b"".join(sent), before=before)


# Frames


def pings(times: int) -> Input:
    return many(lambda number: frames.frame(frames.PING, 0, 0, b"12345678"), 8 * times)


def settings(times: int) -> Input:
    return many(lambda number: frames.settings({1: 0, 2: 0, 3: 0, 5: 16_384, 6: 1}), 8 * times)


def long_settings(times: int) -> Input:
    values = frames.settings({9: 1})[frames.FRAME_HEAD_BYTES :] * min(2700, 16 * times)
    return Input(frames.frame(frames.SETTINGS, 0, 0, values), before=START)


def windows_of_streams(times: int) -> Input:
    sizes = iter(range(100, 1_000_000))
    sent = many(lambda number: frames.settings({4: next(sizes)}), times, streams=_STREAMS)
    # The streams count as one request: they end with the connection.
    return sent._replace(requests=2)


def updates(times: int) -> Input:
    return many(lambda number: frames.window_update(0, 1), 8 * times)


def stream_updates(times: int) -> Input:
    return many(lambda number: frames.window_update(number, 1), 8 * times, streams=_STREAMS)


def priorities(times: int) -> Input:
    return many(lambda number: frames.frame(frames.PRIORITY, 0, number, bytes(5)), 8 * times)


def unknown_frames(times: int) -> Input:
    return many(lambda number: frames.frame(77, 0, 0), 8 * times)


def resets(times: int) -> Input:
    """Rapid reset."""
    return many(lambda number: opened(number) + frames.reset(number, 8), times)._replace(requests=times)


def self_resets(times: int) -> Input:
    """Requests that make the server reset."""

    def broken(number: int) -> bytes:
        return opened(number) + frames.window_update(number, 0)

    return many(broken, times)._replace(requests=times)


def empty_data(times: int) -> Input:
    return many(lambda number: frames.frame(frames.DATA, 0, 1), 8 * times, streams=1)


def padded_data(times: int) -> Input:
    content = b"\xff" + bytes(255)
    return many(lambda number: frames.frame(frames.DATA, frames.PADDED, 1, content), times, streams=1)


def small_data(times: int) -> Input:
    return asked(b"a" * 16 * times, size=1)


def ended_data(times: int) -> Input:
    return many(lambda number: frames.frame(frames.DATA, 0, 1, bytes(20)), times, streams=1, path=INFER)


def frames_by_bytes(times: int) -> Input:
    return asked(b"a" * 16 * times)._replace(piece=1)


def refused(times: int) -> Input:
    before = START + frames.frame(frames.SETTINGS, frames.ACK, 0)
    before += b"".join([opened(2 * number + 1) for number in range(_STREAMS)])
    sent = b"".join([opened(2 * number + 1) for number in range(_STREAMS, _STREAMS + times)])
    return Input(sent, times, before=before)


# Header blocks


def continuations(times: int) -> Input:
    first = frames.frame(frames.HEADERS, 0, 1, block())
    return Input(first + frames.frame(frames.CONTINUATION, 0, 1) * 8 * times, before=START)


def byte_continuations(times: int) -> Input:
    whole = block(INFER, (b"a", b"b" * 8 * times))
    rest = [frames.frame(frames.CONTINUATION, 0, 1, whole[at : at + 1]) for at in range(1, len(whole))]
    first = frames.frame(frames.HEADERS, 0, 1, whole[:1])
    return Input(first + b"".join(rest), before=START)


def indexed(times: int) -> Input:
    """Fields of one byte each."""
    return Input(frames.headers(1, block() + b"\x8f" * times, ends=False), before=START)


def table_entries(times: int) -> Input:
    entry = b"\x40\x01a\x7f\x81\x1f" + b"b" * 4096
    bomb = frames.headers(1, entry + b"\xbe" * times, ends=False)
    return Input(bomb, before=START)


def table_growth(times: int) -> Input:
    def grown(number: int) -> bytes:
        return frames.headers(number, block(INFER, (b"a%d" % number, b""), table=True), ends=True)

    return many(grown, times)._replace(requests=times)


def table_sizes(times: int) -> Input:
    return Input(frames.headers(1, b"\x20\x3f\xe1\x1f" * times + block(), ends=False), before=START)


def huffman(times: int) -> Input:
    return Input(opened(1, INFER, (b"a", b"0" * 16 * times)), before=START)


def literals(times: int) -> Input:
    return Input(frames.headers(1, block() + b"\0\1a\0" * times, ends=False), before=START)


def long_integer(times: int) -> Input:
    return Input(frames.headers(1, b"\x7f" + b"\x80" * times + b"\0", ends=False), before=START)


def trailers(times: int) -> Input:
    def sent(number: int) -> bytes:
        return frames.headers(number, b"\0\1a\0" * 16, ends=True)

    return many(sent, min(times, _STREAMS), streams=_STREAMS)._replace(requests=times)


# Calls


def unary(times: int) -> Input:
    request = _infer()

    def sent(number: int) -> bytes:
        return opened(number) + data(number, message(request))

    return many(sent, times)._replace(requests=times)


def open_streams(times: int) -> Input:
    return many(lambda number: opened(number, STREAM), min(times, _STREAMS))._replace(requests=times)


def watches(times: int) -> Input:
    def sent(number: int) -> bytes:
        return opened(number, WATCH) + data(number, message(b""))

    return many(sent, min(times, _STREAMS))._replace(requests=times)


def unknown_methods(times: int) -> Input:
    return many(lambda number: opened(number, b"/a/" + b"b" * 64), times)._replace(requests=times)


def streamed(times: int) -> Input:
    sent = message(_infer()) * times
    return Input(data(1, sent), times, before=START + opened(1, STREAM))


def streamed_by_one(times: int) -> Input:
    sent = message(_infer())
    return many(lambda number: data(1, sent, ends=False), times, streams=1)._replace(requests=times)


def empty_messages(times: int) -> Input:
    return Input(data(1, message(b"") * 8 * times), 8 * times, before=START + opened(1, STREAM))


def reflections(times: int) -> Input:
    asks = kind("grpc.reflection.v1.ServerReflectionRequest")
    sent = message(asks(list_services="").SerializeToString()) * times
    return Input(data(1, sent), times, before=START + opened(1, REFLECTION))


def compressed(times: int) -> Input:
    request = _infer(b"1" * 1024 * times)
    sent = opened(1, INFER, (b"grpc-encoding", b"gzip")) + data(1, gzipped(request))
    return Input(sent, before=START, inflated=len(request))


def compressed_messages(times: int) -> Input:
    opening = opened(1, STREAM, (b"grpc-encoding", b"gzip"))
    return Input(data(1, gzipped(_infer()) * times), times, before=START + opening)


def gzip_members(times: int) -> Input:
    sent = message(gzip.compress(b"") * 4 * times, flag=1)
    return Input(opened(1, INFER, (b"grpc-encoding", b"gzip")) + data(1, sent), before=START)


# Messages


def _infer(raw: bytes = b"1234", **more: object) -> bytes:
    request = _InferRequest(model_name="fake.json", raw_input_contents=[raw], **more)
    request.inputs.add(name="x", datatype="BYTES" if len(raw) > 4 else "FP32", shape=[1])
    written: bytes = request.SerializeToString()
    return written


def _field(number: int, content: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(content)) + content


def raw_values(times: int) -> Input:
    size = 1024 * times
    request = _InferRequest(model_name="fake.json", raw_input_contents=[bytes(4 * size)])
    request.inputs.add(name="x", datatype="FP32", shape=[size])
    return asked(request.SerializeToString())


def typed_values(times: int) -> Input:
    request = _InferRequest(model_name="fake.json")
    values = request.inputs.add(name="x", datatype="INT8", shape=[64 * times])
    values.contents.int_contents.extend([1] * 64 * times)
    return asked(request.SerializeToString())


def texts(times: int) -> Input:
    request = _InferRequest(model_name="fake.json")
    values = request.inputs.add(name="x", datatype="BYTES", shape=[64 * times])
    values.contents.bytes_contents.extend([b""] * 64 * times)
    return asked(request.SerializeToString())


def raw_texts(times: int) -> Input:
    request = _InferRequest(model_name="fake.weighed", raw_input_contents=[bytes(4 * 16 * times)])
    request.inputs.add(name="x", datatype="BYTES", shape=[16 * times])
    return asked(request.SerializeToString())


def inputs(times: int) -> Input:
    request = _InferRequest(model_name="fake.json", raw_input_contents=[b"1"] * 4 * times)
    for key in range(4 * times):
        request.inputs.add(name=f"x{key}", datatype="BOOL", shape=[1])
    return asked(request.SerializeToString())


def outputs(times: int) -> Input:
    request = _InferRequest.FromString(_infer())
    for key in range(8 * times):
        request.outputs.add(name=f"y{key}")
    return asked(request.SerializeToString())


def empty_inputs(times: int) -> Input:
    return asked(_infer() + _field(5, b"") * 64 * times)


def empty_outputs(times: int) -> Input:
    return asked(_infer() + _field(6, b"") * 64 * times)


def parameters(times: int) -> Input:
    request = _InferRequest.FromString(_infer())
    for key in range(8 * times):
        request.parameters[f"p{key}"].int64_param = 1
    return asked(request.SerializeToString())


def empty_parameters(times: int) -> Input:
    return asked(_infer() + _field(4, b"") * 64 * times)


def shape(times: int) -> Input:
    return asked(_infer() + _field(5, _field(3, b"\1" * 64 * times)))


def unknown_fields(times: int) -> Input:
    return asked(_infer() + b"\x98\x06\x01" * 64 * times)


def groups(times: int) -> Input:
    return asked(_infer() + b"\x9b\x06" * 16 * times + b"\x9c\x06" * 16 * times)


def repeated_name(times: int) -> Input:
    return asked(_infer() + _field(1, b"fake.json") * 16 * times)


def unknown_model(times: int) -> Input:
    return asked(_InferRequest(model_name="a" * 64 * times).SerializeToString())


def broken_message(times: int) -> Input:
    return asked(_infer() + b"\xff" * 64 * times)


def predict(times: int) -> Input:
    request = _PredictRequest()
    request.model_spec.name = "fake.json"
    for key in range(4 * times):
        tensor = request.inputs[f"x{key}"]
        tensor.dtype, tensor.tensor_content = 1, struct.pack("<f", 1)
        tensor.tensor_shape.dim.add(size=1)
    return asked(request.SerializeToString(), PREDICT)


def repeated_value(times: int) -> Input:
    request = _PredictRequest()
    request.model_spec.name = "fake.json"
    tensor = request.inputs["x"]
    tensor.dtype = 1
    tensor.float_val.append(1)
    tensor.tensor_shape.dim.add(size=64 * times)
    return asked(request.SerializeToString(), PREDICT)


INPUTS: Mapping[str, Callable[[int], Input]] = {
    name: each
    for name, each in list(globals().items())
    if callable(each) and [*getattr(each, "__annotations__", {})] == ["times", "return"]
}
