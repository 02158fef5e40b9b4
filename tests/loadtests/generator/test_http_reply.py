"""The parser of replies."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.examples import at_most
from tests.loadtests.fake_server import chunked, reply
from uncork_loadtests.generator.http_reply import Reply, ReplyError, ReplyParser
from uncork_loadtests.generator.samples import UNKNOWN


def parse(fields: str = "", *, version: str = "1.1", status: int = 200) -> Reply:
    found = ReplyParser().feed(f"HTTP/{version} {status} x\r\nContent-Length: 0\r\n{fields}\r\n".encode())
    assert found is not None
    return found


def feed_all(parser: ReplyParser, *, pieces: list[bytes]) -> list[Reply]:
    found = [parser.feed(piece) for piece in pieces]
    return [one for one in found if one is not None]


@at_most(60)
@given(
    chunks=st.lists(st.binary(min_size=1, max_size=40), max_size=5),
    in_chunks=st.booleans(),
    cuts=st.lists(st.integers(0, 250), max_size=6),
)
def test_a_reply_is_the_same_however_it_is_cut(chunks: list[bytes], in_chunks: bool, cuts: list[int]) -> None:
    body = b"".join(chunks)
    whole = chunked(*chunks) if in_chunks else reply(body, fields="X-BATCH-Size: 7\r\nServer: fake\r\n")
    ends = [0, *sorted(min(cut, len(whole)) for cut in cuts), len(whole)]
    pieces = [whole[a:b] for a, b in itertools.pairwise(ends) if a < b]

    found = feed_all(ReplyParser(), pieces=pieces)

    if in_chunks:
        assert [(one.status, one.body, one.chunks) for one in found] == [(200, body, len(chunks))]
    else:
        assert found == [Reply(200, body, batch_rows=7)]


@pytest.mark.parametrize(
    ("size", "rows"), [("999999999", 999_999_999), ("2147483648", 0), ("9" * 5000, 0), ("-1", 0), ("x", 0)]
)
def test_a_batch_size_fits_into_a_sample(size: str, rows: int) -> None:
    found = ReplyParser().feed(reply(b"1", fields=f"X-Batch-Size: {size}\r\n"))

    assert found == Reply(200, b"1", batch_rows=rows)


def test_the_first_chunk_is_seen_before_the_end() -> None:
    parser, whole = ReplyParser(), chunked(b"one", b"two")
    seen = []
    for number in range(len(whole) - 1):
        assert parser.feed(whole[number : number + 1]) is None
        seen.append(parser.has_chunk)

    assert seen.index(True) == whole.index(b"one")
    assert parser.feed(whole[-1:]) == Reply(200, b"onetwo", chunks=2)
    assert not parser.has_chunk


def test_one_parser_reads_reply_after_reply() -> None:
    parser = ReplyParser()
    first, second = reply(b"first"), reply(b"", status="503 Busy")
    third = chunked(b"third")
    pieces = [first[:10], first[10:50], first[50:], third, second, third[:60], third[60:], first]

    found = feed_all(parser, pieces=pieces)

    assert [(one.status, one.body) for one in found] == [
        (200, b"first"),
        (200, b"third"),
        (503, b""),
        (200, b"third"),
        (200, b"first"),
    ]


@given(cut=st.integers(1, 120))
def test_what_comes_before_the_reply_is_skipped(cut: int) -> None:
    whole = 2 * b"HTTP/1.1 100 Continue\r\n\r\n" + reply(b"body")

    found = feed_all(ReplyParser(), pieces=[whole[:cut], whole[cut:]])

    assert [(one.status, one.body) for one in found] == [(200, b"body")]


@pytest.mark.parametrize(
    ("version", "connection", "stays"),
    [
        ("1.1", "", True),
        ("1.1", "Connection: Close\r\n", False),
        ("1.1", "connection: keep-alive, Upgrade\r\n", True),
        ("1.0", "", False),
        ("1.0", "CONNECTION: Keep-Alive\r\n", True),
    ],
)
def test_a_reply_says_whether_the_connection_stays(version: str, connection: str, stays: bool) -> None:
    assert parse(connection, version=version).keep_alive is stays


def test_a_reply_without_a_body_needs_no_length() -> None:
    assert ReplyParser().feed(b"HTTP/1.1 204 No Content\r\n\r\n") is not None


@pytest.mark.parametrize(
    "data",
    [
        b"SSH-2.0-OpenSSH\r\n\r\n",
        b"HTTP/1.1 abc\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n\r\nuntil it is closed",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n",
        chunked(b"body") + b"HTTP/1.1 200 OK",
        b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
        reply(b"body") + b"more",
        b"x" * 70_000,
    ],
)
def test_what_is_no_reply_is_refused(data: bytes) -> None:
    with pytest.raises(ReplyError):
        ReplyParser().feed(data)


@pytest.mark.parametrize(
    ("field", "times"),
    [
        ("Server-Timing: queue;dur=1.50, batch;dur=12.25\r\n", (1.5, 12.25)),
        ("server-timing: batch;dur=3;desc=x, queue;dur=0\r\n", (0.0, 3.0)),
        ("Server-Timing: db;dur=5\r\n", (UNKNOWN, UNKNOWN)),
        ("Server-Timing: queue;dur=soon\r\n", (UNKNOWN, UNKNOWN)),
        ("", (UNKNOWN, UNKNOWN)),
    ],
)
def test_a_reply_may_say_where_its_time_went(field: str, times: tuple[float, float]) -> None:
    found = parse(field)

    assert (found.queued_ms, found.batch_ms) == pytest.approx(times, nan_ok=True)


@pytest.mark.parametrize(
    ("status", "fields", "expected"),
    [
        (503, "Retry-After: 7\r\n", 7),
        (503, "retry-after: Wed, 21 Oct 2026 07:28:00 GMT\r\n", None),
        (503, "", None),
        (200, "Retry-After: 7\r\n", None),
    ],
)
def test_a_refusal_says_when_to_come_back(status: int, fields: str, expected: int | None) -> None:
    assert parse(fields, status=status).retry_after_s == expected
