"""What clients send over HTTP/1.1, in any size.

Each entry of ``INPUTS`` makes one kind of input, ``times`` as large as the smallest.
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


def _infer(*tensors: Mapping[str, object], model: str = "json", **more: object) -> Input:
    """Return a V2 request with tensors, each of one value where it has no other."""
    one = {"name": "x", "shape": [1], "datatype": "FP32", "data": [1]}
    inputs = [{**one, **tensor} for tensor in tensors or [{}]]
    return _json(f"/v2/models/fake.{model}/infer", {"inputs": inputs, **more})


def expecting(times: int) -> Input:
    one = head(b"Expect: 100-continue", length=2) + b"[]"
    return Input(one * times, times)


def gzipped(times: int) -> Input:
    body, size = gzip.compress(b"1" * 1024 * times), 1024 * times
    return post(b"/raw", body, b"Content-Encoding: gzip")._replace(inflated=size)


def lenient_parameter(times: int) -> Input:
    infer = b'{"inputs":[{"name":"x","shape":[1],"datatype":"FP32","data":[NaN]}],"parameters":{"a":[%b1]}}'
    return post(b"/v2/models/fake.json/infer", infer % (b"[]," * 64 * times))


def split_table(times: int) -> Input:
    names = [f"c{key}" for key in range(16 * times)]
    return _json("/table", {"columns": [*names, names[-1]], "data": [[1] * len(names)]})


def csv_header(times: int) -> Input:
    names = [b"c%d" % key for key in range(16 * times)]
    return post(b"/table", b",".join([*names, names[-1]]) + b"\n1\n", b"Content-Type: text/csv")


def csv_names(times: int) -> Input:
    names = [b"c%d" % key for key in range(16 * times)]
    lines = b"%b\n%b\n" % (b",".join(names), b",".join([b"1"] * len(names)))
    return post(b"/table", lines, b"Content-Type: text/csv")


def form(times: int) -> Input:
    body = b'--b\r\nContent-Disposition: form-data; name="a"\r\n\r\n\r\n' * 4 * times + b"--b--\r\n"
    return post(b"/raw", body, b"Content-Type: multipart/form-data; boundary=b")


def _binary(datatype: str, shape: Sequence[int], data: bytes) -> Input:
    tensor = {"name": "x", "shape": shape, "datatype": datatype}
    text = json.dumps({"inputs": [{**tensor, "parameters": {"binary_data_size": len(data)}}]}).encode()
    length = b"Inference-Header-Content-Length: %d" % len(text)
    return post(b"/v2/models/fake.weighed/infer", text + data, length)


def weighed_inputs(times: int) -> Input:
    column = {"shape": [4 * times], "data": [1] * 4 * times}
    return _infer(*[{"name": f"x{key}", **column} for key in range(4)], model="weighed")


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
    # Heads
    "short_fields": lambda times: Input(head(*[b"a:"] * times, length=0)),
    "equal_fields": lambda times: Input(
        head(*[b"x-request-id: a", b"Accept: a;q=0.1"] * times, length=0, target=b"/raw")
    ),
    "accept": lambda times: Input(head(b"Accept: " + b"a/b;q=0.5," * times, length=0)),
    "long_value": lambda times: Input(head(b"a: " + b"b" * 64 * times, length=0)),
    "cookies": lambda times: Input(
        head(b"Cookie: " + b"a=b; " * 8 * times, method=b"GET", target=b"/openapi.json")
    ),
    "path": lambda times: Input(head(method=b"GET", target=b"/v2/models" + b"/ab" * times)),
    "near_path": lambda times: Input(head(method=b"GET", target=b"/" + b"jsno" * times)),
    "escaped_path": lambda times: Input(head(target=b"/" + b"%6A" * times, length=0)),
    "dots": lambda times: Input(head(method=b"GET", target=b"/" + b"../" * times)),
    "query": lambda times: Input(head(target=b"/raw?" + b"a=%20&" * times, length=0)),
    "absolute": lambda times: Input(head(target=b"http://" + b"a." * times + b"/json", length=0)),
    "host": lambda times: Input(
        b"POST /json HTTP/1.1\r\nHost: " + b"%41" * times + b"\r\nContent-Length: 0\r\n\r\n"
    ),
    "number": lambda times: Input(head(b"X-Request-Timeout-Ms: " + b"9" * 16 * times, length=0)),
    "content_type": lambda times: Input(
        head(b"Content-Type: text/plain; " + b'a="\\"";' * times, length=0, target=b"/embed")
    ),
    "upgrades": lambda times: Input(head(*[b"Upgrade: h2c", b"Connection: Upgrade"] * times, length=0)),
    "empty_lines": lambda times: Input(b"\r\n" * 16 * times + head(length=0)),
    "endless_head": lambda times: Input(b"POST / HTTP/1.1\r\n" + b"a:b\r\n" * 16 * times),
    "head_by_bytes": lambda times: Input(head(b"a: " + b"b" * 8 * times, length=0), piece=1),
    "target_by_bytes": lambda times: Input(head(target=b"/" + b"b" * 8 * times, length=0), piece=1),
    # Bodies on the wire
    "chunks": lambda times: Input(chunked(*[b"1"] * 16 * times)),
    "chunks_by_bytes": lambda times: Input(chunked(*[b"1"] * 2 * times), piece=1),
    "extensions": lambda times: Input(chunked(*[b"1"] * 4 * times, more=b';a="b"' * 4)),
    "long_extension": lambda times: Input(chunked(b"1", more=b";a=b" * 16 * times)),
    "trailers": lambda times: Input(chunked(b"1", trailers=b"a: b\r\n" * 8 * times)),
    "body_by_bytes": lambda times: Input(post(b"/json", b"[" + b" " * 16 * times + b"]").data, piece=1),
    "body": lambda times: post(b"/json", b"[" + b" " * 1024 * times + b"]"),
    "unread_body": lambda times: Input(head(target=b"/nowhere", length=1024 * times) + b" " * 1024 * times),
    "page_body": lambda times: Input(
        head(target=b"/v2/repository/index", length=1024 * times) + b" " * 1024 * times
    ),
    "expecting": expecting,
    "gzipped": gzipped,
    "members": lambda times: post(b"/raw", gzip.compress(b"") * 4 * times, b"Content-Encoding: gzip"),
    # Many requests
    "pipelined": lambda times: Input((head(length=2) + b"[]") * times, times),
    "pipelined_pages": lambda times: Input(head(method=b"GET", target=b"/livez") * times, times),
    "pipelined_unknown": lambda times: Input(head(method=b"GET", target=b"/" + b"x" * 64) * times, times),
    "malformed": lambda times: Input(b"GET /\x00 HTTP/1.1\r\n\r\n" * times, times),
    # JSON
    "nested": lambda times: post(b"/weighed", b"[" * 16 * times + b"]" * 16 * times),
    "nested_array": lambda times: post(b"/array", b"[" * 16 * times + b"]" * 16 * times),
    "keys": lambda times: _json("/grouped", {"g": 1, **{f"k{key}": key for key in range(16 * times)}}),
    "equal_keys": lambda times: post(b"/grouped", b'{"g":1' + b',"a":1' * 16 * times + b"}"),
    "large_number": lambda times: post(
        b"/v2/models/fake.json/infer", b'{"inputs":[{"name":"x","shape":[%b]}]}' % (b"9" * 64 * times)
    ),
    "escapes": lambda times: post(b"/embed", b'{"input":"%b"}' % (b'\\"' * 64 * times)),
    "bad_escapes": lambda times: post(b"/weighed", b'"%b\\ud800"' % (b"\\\\" * 64 * times)),
    "rows": lambda times: _json("/array", [[1]] * 64 * times),
    "instances": lambda times: _json("/v1/models/fake.json:predict", {"instances": [1] * 64 * times}),
    "weighed_instances": lambda times: _json(
        "/v1/models/fake.weighed:predict", {"instances": [1] * 64 * times}
    ),
    "grouped_instances": lambda times: _json(
        "/v1/models/fake.grouped:predict", {"instances": [{"g": 1}] * 16 * times}
    ),
    "bulk_instances": lambda times: _json(
        "/v1/models/fake.bulk:predict", {"instances": [1] * 64 * times}, b"X-Request-Class: bulk"
    ),
    "named_columns": lambda times: _json(
        "/v1/models/fake.json:predict", {"inputs": {"a" * 16 * times: [1] * 16 * times}}
    ),
    "many_columns": lambda times: _json(
        "/v1/models/fake.json:predict", {"inputs": {f"a{key}": [1] for key in range(16 * times)}}
    ),
    "lenient": lambda times: post(
        b"/v1/models/fake.json:predict", b'{"instances":[NaN,[%b]]}' % (b"[]," * 64 * times + b"[]")
    ),
    "lenient_parameter": lenient_parameter,
    "split_table": split_table,
    "columns_table": lambda times: _json("/table", {"a" * 16 * times: [1] * 16 * times}),
    "indexed_table": lambda times: _json("/table", {"a": {str(key): 1 for key in range(16 * times)}}),
    "records_table": lambda times: _json("/table", [{"a": 1}] * 16 * times),
    "csv": lambda times: post(b"/table", b"a,b\n" + b"1,\n" * 16 * times, b"Content-Type: text/csv"),
    "quoted_csv": lambda times: post(b"/table", b"a,b\n" + b'"",\n' * 16 * times, b"Content-Type: text/csv"),
    "csv_header": csv_header,
    "csv_names": csv_names,
    "texts": lambda times: _json("/embed", {"input": [""] * 16 * times}),
    "tokens": lambda times: _json("/embed", {"input": [1] * 16 * times}),
    "documents": lambda times: _json("/rank", {"query": "a" * 16 * times, "documents": [""] * 16 * times}),
    "charset": lambda times: post(
        b"/embed", b"+AAA-" * 64 * times, b"Content-Type: text/plain; charset=utf-7"
    ),
    "form": form,
    "same": lambda times: post(b"/same", b"[%b]" % (b" " * 64 * times), b"Cookie: a"),
    # V2
    "inputs": lambda times: _infer(*[{"name": f"x{key}"} for key in range(4 * times)]),
    "outputs": lambda times: _infer(outputs=[{"name": f"y{key}"} for key in range(4 * times)]),
    "parameters": lambda times: _infer(parameters={f"p{key}": key for key in range(8 * times)}),
    "input_parameters": lambda times: _infer({"parameters": {f"p{key}": key for key in range(8 * times)}}),
    "axes": lambda times: _infer({"shape": [1] * 16 * times}),
    "flat_values": lambda times: _infer({"shape": [16 * times], "data": [1] * 16 * times}),
    "nested_values": lambda times: _infer(
        {"shape": [16 * times, 1], "data": [[1]] * 16 * times}, model="weighed"
    ),
    "narrow_values": lambda times: _infer(
        {"shape": [1, 16 * times, 1], "datatype": "INT8", "data": [1] * 16 * times}, model="weighed"
    ),
    "weighed_inputs": weighed_inputs,
    "weighed_axes": lambda times: _binary("INT8", [1, 80 * times, *[1] * 60], b"\1" * 80 * times),
    "binary_numbers": lambda times: _binary("INT8", [1, 64 * times], b"\1" * 64 * times),
    "binary_texts": lambda times: _binary("BYTES", [16 * times], b"\0\0\0\0" * 16 * times),
    "npy": npy,
    "npy_head": npy_head,
}
