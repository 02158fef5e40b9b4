"""Mutations of valid requests, decided by the given random generator only."""

import json
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

from benchmarks.fuzz.seeds import Seed

_PIECES = (
    b"", b"\0", b"\r\n", b"\n", b"\r\n\r\n", b" ", b"\t", b'"', b"'", b",", b":", b"{", b"}", b"[", b"]",
    b"\\", b"\\u", b"\\ud800", b"\xff", b"\xc3\x28", b"\xef\xbb\xbf", b"-", b"0", b"-1", b"1e999",
    b"9" * 40, b"NaN", b"null", b"true", b"%00", b"%", b"../", b"[" * 2000, b'{"a":' * 500, b"A" * 5000,
    b"--", b";", b"=",
)  # fmt: skip
_VALUES: tuple[Any, ...] = (
    None, True, False, 0, -1, 1.5, 2**31, 2**63, 2**64, 10**40, -(10**400), 1e308, float("inf"),
    float("nan"), "", "x", "\ud800", "\0", "9" * 400, "é" * 3, "1", "FP32", "BYTES", "INT64", [], {},
    [[]], [{}], [None], {"": None}, [[1], [1, 2]], list(range(300)), {"binary_data_size": -1}, [2, -64],
    [0, 64], [2**40, 2**40],
)  # fmt: skip
_METHODS = (
    b"GET", b"PUT", b"HEAD", b"OPTIONS", b"DELETE", b"PATCH", b"CONNECT", b"TRACE", b"get", b"P\xc3ST",
    b"",
)  # fmt: skip
_VERSIONS = (b"HTTP/1.0", b"HTTP/2.0", b"HTTP/0.9", b"HTTP/1.", b"http/1.1", b"")
_HEADERS = (
    (b"Transfer-Encoding", b"chunked"), (b"Transfer-Encoding", b"gzip, chunked"),
    (b"Content-Encoding", b"gzip"), (b"Content-Encoding", b"br"), (b"Expect", b"100-continue"),
    (b"Expect", b"else"), (b"Upgrade", b"websocket"), (b"Connection", b"close"),
    (b"Connection", b"Upgrade"), (b"Connection", b"keep-alive"), (b"Accept", b"*/*;q=x"),
    (b"Accept", b"text/csv"), (b"Accept", b"image/*;q=0"), (b"Content-Type", b"text/csv"),
    (b"Content-Type", b""), (b"Content-Type", b"application/json; charset=utf-16"),
    (b"Content-Type", b"application/x-npy"), (b"Content-Type", b"multipart/form-data"),
    (b"Content-Type", b"application/octet-stream"), (b"X" * 9000, b"y"),
    *((b"Inference-Header-Content-Length", value) for value in (b"0", b"-1", b"5", b"99999999", b"x", b"")),
    (b"X-Long", b"z" * 9000), (b"", b"no name"), (b"Host", b""), (b"Cookie", b"\xff\xfe"),
    (b"Bad Name", b"x"),
)  # fmt: skip
_LENGTHS = (
    b"0", b"-1", b"+5", b"0x10", b"1_0", b" 7 ", b"99999999999999999999", b"", b"x", b"5, 5", b"\xb2",
)  # fmt: skip
_MAX_CHANGES = 4
_MAX_DEPTH = 6
_BODY_ALONE = 0.4


def mutated(seed: Seed, random: Random) -> bytes:
    """Return a mutated request: wrong in its body, or also in its head and framing."""
    body = seed.body
    if body and random.random() < 0.8:
        body = _changed_body(seed, random)
    headers = [(b"Host", b"fuzz"), *seed.headers]
    framed = [(b"Content-Length", str(len(body)).encode())] if seed.method == b"POST" else []
    line = (seed.method, seed.target, b"HTTP/1.1")
    if body and random.random() < _BODY_ALONE:
        return _written(line, [*headers, *framed], body)
    if random.random() < 0.4:
        framed, body = _framed_anew(body, random)
    for _ in range(random.choice((0, 1, 2))):
        line = _changed_line(line, headers, random)
    request = _written(line, [*headers, *framed], body)
    return changed_bytes(request, random) if random.random() < 0.2 else request


def _written(line: tuple[bytes, bytes, bytes], headers: Sequence[tuple[bytes, bytes]], body: bytes) -> bytes:
    lines = [b" ".join(line), *(b"%b: %b" % header for header in headers)]
    return b"\r\n".join([*lines, b"", body])


def _changed_body(seed: Seed, random: Random) -> bytes:
    change = _changed_json if seed.is_json and random.random() < 0.6 else changed_bytes
    body = seed.body
    for _ in range(random.choice((1, 1, 2, _MAX_CHANGES))):
        body = change(body, random)
    return body


def changed_bytes(data: bytes, random: Random) -> bytes:
    """Replace, insert, remove, repeat or cut off some bytes."""
    start = random.randrange(len(data) + 1)
    end = min(len(data), start + random.choice((1, 1, 2, 8, 64)))
    piece = random.choice(_PIECES)
    return random.choice(
        (
            data[:start] + piece + data[start:],
            data[:start] + piece + data[end:],
            data[:start] + random.randbytes(end - start) + data[end:],
            data[:start] + data[end:],
            data[:end] + data[start:],
            data[:start],
        )
    )


def _changed_json(body: bytes, random: Random) -> bytes:
    """Replace, remove or repeat a value of the document, or change a name."""
    try:
        value = json.loads(body)
    except ValueError:
        return changed_bytes(body, random)
    return json.dumps(_changed_value(value, random, _MAX_DEPTH)).encode()


def _changed_value(value: Any, random: Random, depth: int) -> Any:
    if depth == 0 or not value or not isinstance(value, dict | list) or random.random() < 0.2:
        return random.choice((random.choice(_VALUES), [value], {"x": value}))
    if isinstance(value, list):
        at = random.randrange(len(value))
        inner = _changed_value(value[at], random, depth - 1)
        return random.choice(
            ([*value[:at], inner, *value[at + 1 :]], value[:at] + value[at + 1 :], [*value, value[at]])
        )
    name = random.choice(list(value))
    rest = {other: kept for other, kept in value.items() if other != name}
    inner = _changed_value(value[name], random, depth - 1)
    return random.choice(
        ({**value, name: inner}, {**value, name: inner}, rest, {**rest, f"{name}x": value[name]})
    )


def _framed_anew(body: bytes, random: Random) -> tuple[list[tuple[bytes, bytes]], bytes]:
    """Return other framing headers, and the body in that framing."""
    chunked = [(b"Transfer-Encoding", b"chunked")]
    cut = random.randrange(len(body) + 1)
    chunks = b"%b%b0\r\n\r\n" % (_chunk(body[:cut]), _chunk(body[cut:]))
    length = str(len(body) + random.choice((-3, -1, 1, 100))).encode()
    return random.choice(
        (
            (chunked, chunks),
            (chunked, changed_bytes(chunks, random)),
            (chunked, chunks.replace(b"\r\n", b";name=value\r\n", 1)),
            ([(b"Content-Length", random.choice(_LENGTHS))], body),
            ([(b"Content-Length", length)], body),
            ([(b"Content-Length", b"%d" % len(body)), (b"Content-Length", length)], body),
            ([*chunked, (b"Content-Length", length)], chunks),
            ([], body),
        )
    )


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data) if data else b""


def _changed_line(
    line: tuple[bytes, bytes, bytes], headers: list[tuple[bytes, bytes]], random: Random
) -> tuple[bytes, bytes, bytes]:
    """Change method, target or version, or (in place) the headers."""
    method, target, version = line
    match random.randrange(8):
        case 0:
            method = random.choice(_METHODS)
        case 1:
            target = _changed_target(target, random)
        case 2:
            version = random.choice(_VERSIONS)
        case 3:
            headers.pop(random.randrange(len(headers)))
            headers.append(random.choice(_HEADERS))
        case 4:
            at = random.randrange(len(headers))
            headers[at] = (headers[at][0], changed_bytes(headers[at][1], random))
        case _:
            headers.append(random.choice(_HEADERS))
    return method, target, version


def _changed_target(target: bytes, random: Random) -> bytes:
    changes: tuple[Callable[[], bytes], ...] = (
        lambda: changed_bytes(target, random),
        lambda: target + b"?" + random.choice(_PIECES) + b"=" + random.choice(_PIECES),
        lambda: b"http://fuzz" + target,
        lambda: b"".join(b"%%%02X" % byte for byte in target),
        lambda: target + b"/",
        lambda: b"*",
    )
    return random.choice(changes)()
