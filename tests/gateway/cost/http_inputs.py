"""What clients send over HTTP/1.1, in any size.

Each function makes one kind of input, ``times`` as large as the smallest.
"""

from __future__ import annotations

import gzip
import io
import json
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

_READ_BYTES = 256 * 1024
"""The most bytes that uvloop reads from a socket at a time."""


class Input(NamedTuple):
    """Some input of one connection.

    Attributes:
        data: the bytes.
        requests: how many requests, or parts of one, these are at most.
        piece: the most bytes that arrive at a time.
        before: what was sent before, and is not counted.
        inflated: the size of the body after decompression.
    """

    data: bytes
    requests: int = 1
    piece: int = _READ_BYTES
    before: bytes = b""
    inflated: int = 0

    @property
    def pieces(self) -> Sequence[bytes]:
        return [self.data[at : at + self.piece] for at in range(0, len(self.data), self.piece)]


def head(
    *lines: bytes, method: bytes = b"POST", target: bytes = b"/json", length: int | None = None
) -> bytes:
    """Return the head of a request."""
    more = () if length is None else (b"Content-Length: %d" % length,)
    return b"\r\n".join([b"%b %b HTTP/1.1" % (method, target), b"Host: a", *lines, *more, b"", b""])


def post(target: bytes, body: bytes, *lines: bytes) -> Input:
    return Input(head(*lines, target=target, length=len(body)) + body)


def chunked(*pieces: bytes, more: bytes = b"", trailers: bytes = b"") -> bytes:
    """Return a request whose body is in chunks."""
    chunks = b"".join([b"%x%b\r\n%b\r\n" % (len(piece), more, piece) for piece in pieces])
    return head(b"Transfer-Encoding: chunked") + chunks + b"0\r\n%b\r\n" % trailers


def _json(target: str, value: object, *lines: bytes) -> Input:
    return post(target.encode(), json.dumps(value, separators=(",", ":")).encode(), *lines)


# Heads


def short_fields(times: int) -> Input:
    return Input(head(*[b"a:"] * times, length=0))


def equal_fields(times: int) -> Input:
    return Input(head(*[b"x-request-id: a", b"Accept: a;q=0.1"] * times, length=0, target=b"/raw"))


def accept(times: int) -> Input:
    return Input(head(b"Accept: " + b"a/b;q=0.5," * times, length=0))


def long_value(times: int) -> Input:
    return Input(head(b"a: " + b"b" * 64 * times, length=0))


def cookies(times: int) -> Input:
    return Input(head(b"Cookie: " + b"a=b; " * 8 * times, method=b"GET", target=b"/openapi.json"))


def path(times: int) -> Input:
    return Input(head(method=b"GET", target=b"/v2/models" + b"/ab" * times))


def near_path(times: int) -> Input:
    return Input(head(method=b"GET", target=b"/" + b"jsno" * times))


def escaped_path(times: int) -> Input:
    return Input(head(target=b"/" + b"%6A" * times, length=0))


def dots(times: int) -> Input:
    return Input(head(method=b"GET", target=b"/" + b"../" * times))


def query(times: int) -> Input:
    return Input(head(target=b"/raw?" + b"a=%20&" * times, length=0))


def absolute(times: int) -> Input:
    return Input(head(target=b"http://" + b"a." * times + b"/json", length=0))


def host(times: int) -> Input:
    return Input(b"POST /json HTTP/1.1\r\nHost: " + b"%41" * times + b"\r\nContent-Length: 0\r\n\r\n")


def number(times: int) -> Input:
    return Input(head(b"X-Request-Timeout-Ms: " + b"9" * 16 * times, length=0))


def content_type(times: int) -> Input:
    return Input(head(b"Content-Type: text/plain; " + b'a="\\"";' * times, length=0, target=b"/embed"))


def upgrades(times: int) -> Input:
    return Input(head(*[b"Upgrade: h2c", b"Connection: Upgrade"] * times, length=0))


def empty_lines(times: int) -> Input:
    return Input(b"\r\n" * 16 * times + head(length=0))


def endless_head(times: int) -> Input:
    return Input(b"POST / HTTP/1.1\r\n" + b"a:b\r\n" * 16 * times)


def head_by_bytes(times: int) -> Input:
    return Input(head(b"a: " + b"b" * 8 * times, length=0), piece=1)


def target_by_bytes(times: int) -> Input:
    return Input(head(target=b"/" + b"b" * 8 * times, length=0), piece=1)


# Bodies on the wire


def chunks(times: int) -> Input:
    return Input(chunked(*[b"1"] * 16 * times))


def chunks_by_bytes(times: int) -> Input:
    return Input(chunked(*[b"1"] * 2 * times), piece=1)


def extensions(times: int) -> Input:
    return Input(chunked(*[b"1"] * 4 * times, more=b';a="b"' * 4))


def long_extension(times: int) -> Input:
    return Input(chunked(b"1", more=b";a=b" * 16 * times))


def trailers(times: int) -> Input:
    return Input(chunked(b"1", trailers=b"a: b\r\n" * 8 * times))


def body_by_bytes(times: int) -> Input:
    return Input(post(b"/json", b"[" + b" " * 16 * times + b"]").data, piece=1)


def body(times: int) -> Input:
    return post(b"/json", b"[" + b" " * 1024 * times + b"]")


def unread_body(times: int) -> Input:
    return Input(head(target=b"/nowhere", length=1024 * times) + b" " * 1024 * times)


def page_body(times: int) -> Input:
    return Input(head(target=b"/v2/repository/index", length=1024 * times) + b" " * 1024 * times)


def expecting(times: int) -> Input:
    one = head(b"Expect: 100-continue", length=2) + b"[]"
    return Input(one * times, times)


def gzipped(times: int) -> Input:
    body, size = gzip.compress(b"1" * 1024 * times), 1024 * times
    return post(b"/raw", body, b"Content-Encoding: gzip")._replace(inflated=size)


def members(times: int) -> Input:
    return post(b"/raw", gzip.compress(b"") * 4 * times, b"Content-Encoding: gzip")


# Many requests


def pipelined(times: int) -> Input:
    return Input((head(length=2) + b"[]") * times, times)


def pipelined_pages(times: int) -> Input:
    return Input(head(method=b"GET", target=b"/livez") * times, times)


def pipelined_unknown(times: int) -> Input:
    return Input(head(method=b"GET", target=b"/" + b"x" * 64) * times, times)


def malformed(times: int) -> Input:
    return Input(b"GET /\x00 HTTP/1.1\r\n\r\n" * times, times)


# JSON


def nested(times: int) -> Input:
    return post(b"/weighed", b"[" * 16 * times + b"]" * 16 * times)


def nested_array(times: int) -> Input:
    return post(b"/array", b"[" * 16 * times + b"]" * 16 * times)


def keys(times: int) -> Input:
    return _json("/grouped", {"g": 1, **{f"k{key}": key for key in range(16 * times)}})


def equal_keys(times: int) -> Input:
    return post(b"/grouped", b'{"g":1' + b',"a":1' * 16 * times + b"}")


def large_number(times: int) -> Input:
    return post(
        b"/v2/models/fake.json/infer", b'{"inputs":[{"name":"x","shape":[%b]}]}' % (b"9" * 64 * times)
    )


def escapes(times: int) -> Input:
    return post(b"/embed", b'{"input":"%b"}' % (b'\\"' * 64 * times))


def bad_escapes(times: int) -> Input:
    return post(b"/weighed", b'"%b\\ud800"' % (b"\\\\" * 64 * times))


def rows(times: int) -> Input:
    return _json("/array", [[1]] * 64 * times)


def instances(times: int) -> Input:
    return _json("/v1/models/fake.json:predict", {"instances": [1] * 64 * times})


def weighed_instances(times: int) -> Input:
    return _json("/v1/models/fake.weighed:predict", {"instances": [1] * 64 * times})


def grouped_instances(times: int) -> Input:
    return _json("/v1/models/fake.grouped:predict", {"instances": [{"g": 1}] * 16 * times})


def bulk_instances(times: int) -> Input:
    return _json("/v1/models/fake.bulk:predict", {"instances": [1] * 64 * times}, b"X-Request-Class: bulk")


def named_columns(times: int) -> Input:
    return _json("/v1/models/fake.json:predict", {"inputs": {"a" * 16 * times: [1] * 16 * times}})


def many_columns(times: int) -> Input:
    return _json("/v1/models/fake.json:predict", {"inputs": {f"a{key}": [1] for key in range(16 * times)}})


def lenient(times: int) -> Input:
    return post(b"/v1/models/fake.json:predict", b'{"instances":[NaN,[%b]]}' % (b"[]," * 64 * times + b"[]"))


def lenient_parameter(times: int) -> Input:
    infer = b'{"inputs":[{"name":"x","shape":[1],"datatype":"FP32","data":[NaN]}],"parameters":{"a":[%b1]}}'
    return post(b"/v2/models/fake.json/infer", infer % (b"[]," * 64 * times))


def split_table(times: int) -> Input:
    names = [f"c{key}" for key in range(16 * times)]
    return _json("/table", {"columns": [*names, names[-1]], "data": [[1] * len(names)]})


def columns_table(times: int) -> Input:
    return _json("/table", {"a" * 16 * times: [1] * 16 * times})


def indexed_table(times: int) -> Input:
    return _json("/table", {"a": {str(key): 1 for key in range(16 * times)}})


def records_table(times: int) -> Input:
    return _json("/table", [{"a": 1}] * 16 * times)


def csv(times: int) -> Input:
    return post(b"/table", b"a,b\n" + b"1,\n" * 16 * times, b"Content-Type: text/csv")


def quoted_csv(times: int) -> Input:
    return post(b"/table", b"a,b\n" + b'"",\n' * 16 * times, b"Content-Type: text/csv")


def csv_header(times: int) -> Input:
    names = [b"c%d" % key for key in range(16 * times)]
    return post(b"/table", b",".join([*names, names[-1]]) + b"\n1\n", b"Content-Type: text/csv")


def csv_names(times: int) -> Input:
    names = [b"c%d" % key for key in range(16 * times)]
    lines = b"%b\n%b\n" % (b",".join(names), b",".join([b"1"] * len(names)))
    return post(b"/table", lines, b"Content-Type: text/csv")


def texts(times: int) -> Input:
    return _json("/embed", {"input": [""] * 16 * times})


def tokens(times: int) -> Input:
    return _json("/embed", {"input": [1] * 16 * times})


def documents(times: int) -> Input:
    return _json("/rank", {"query": "a" * 16 * times, "documents": [""] * 16 * times})


def charset(times: int) -> Input:
    return post(b"/embed", b"+AAA-" * 64 * times, b"Content-Type: text/plain; charset=utf-7")


def form(times: int) -> Input:
    body = b'--b\r\nContent-Disposition: form-data; name="a"\r\n\r\n\r\n' * 4 * times + b"--b--\r\n"
    return post(b"/raw", body, b"Content-Type: multipart/form-data; boundary=b")


def same(times: int) -> Input:
    return post(b"/same", b"[%b]" % (b" " * 64 * times), b"Cookie: a")


# V2


_TENSOR = {"name": "x", "shape": [1], "datatype": "FP32", "data": [1]}


def inputs(times: int) -> Input:
    tensors = [{**_TENSOR, "name": f"x{key}"} for key in range(4 * times)]
    return _json("/v2/models/fake.json/infer", {"inputs": tensors})


def outputs(times: int) -> Input:
    wanted = [{"name": f"y{key}"} for key in range(4 * times)]
    return _json("/v2/models/fake.json/infer", {"inputs": [_TENSOR], "outputs": wanted})


def parameters(times: int) -> Input:
    values = {f"p{key}": key for key in range(8 * times)}
    return _json("/v2/models/fake.json/infer", {"inputs": [_TENSOR], "parameters": values})


def input_parameters(times: int) -> Input:
    tensor = {**_TENSOR, "parameters": {f"p{key}": key for key in range(8 * times)}}
    return _json("/v2/models/fake.json/infer", {"inputs": [tensor]})


def axes(times: int) -> Input:
    return _json("/v2/models/fake.json/infer", {"inputs": [{**_TENSOR, "shape": [1] * 16 * times}]})


def flat_values(times: int) -> Input:
    tensor = {**_TENSOR, "shape": [16 * times], "data": [1] * 16 * times}
    return _json("/v2/models/fake.json/infer", {"inputs": [tensor]})


def nested_values(times: int) -> Input:
    tensor = {**_TENSOR, "shape": [16 * times, 1], "data": [[1]] * 16 * times}
    return _json("/v2/models/fake.weighed/infer", {"inputs": [tensor]})


def binary_texts(times: int) -> Input:
    data = b"\0\0\0\0" * 16 * times
    tensor = {"name": "x", "shape": [16 * times], "datatype": "BYTES"}
    text = json.dumps({"inputs": [{**tensor, "parameters": {"binary_data_size": len(data)}}]}).encode()
    length = b"Inference-Header-Content-Length: %d" % len(text)
    return post(b"/v2/models/fake.weighed/infer", text + data, length)


def npy(times: int) -> Input:
    file = io.BytesIO()
    np.save(file, np.zeros((16 * times, 1), "u1"))
    return post(b"/array", file.getvalue(), b"Content-Type: application/x-npy")


def npy_head(times: int) -> Input:
    shape = "{'descr': '|u1', 'fortran_order': False, 'shape': (%s)}\n" % ("1," * times)
    text = shape.encode()
    body = b"\x93NUMPY\x02\x00" + len(text).to_bytes(4, "little") + text + b"\0"
    return post(b"/array", body, b"Content-Type: application/x-npy")


INPUTS: Mapping[str, Callable[[int], Input]] = {
    name: each
    for name, each in list(globals().items())
    if callable(each) and [*getattr(each, "__annotations__", {})] == ["times", "return"]
}
