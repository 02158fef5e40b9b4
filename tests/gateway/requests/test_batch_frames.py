"""The frames of batches."""

from typing import cast

import msgspec
import pytest

from tests.dispatcher.batches import batch_of, submitted
from uncork_dispatcher import BatchResult
from uncork_gateway.backends.worker_connection import Executed
from uncork_gateway.codecs import Marshalled
from uncork_gateway.codecs.base import Sink
from uncork_gateway.codecs.cost import make_weigh
from uncork_gateway.requests.batch_frames import from_frame, to_frame
from uncork_workers.wire.forms import RawForm
from uncork_workers.wire.frames import MAX_HEADER_BYTES
from uncork_workers.wire.messages import Meta, Reply, RowPath
from uncork_workers.wire.schema import ApiSettings

WEIGHED = make_weigh("bytes")
OLD = Marshalled(b"1,2", rows=2)
ONE = Marshalled(b"333", rows=1, cost=WEIGHED([b"333"]))


@pytest.mark.parametrize(
    ("rows", "padded", "limit"),
    [(50, 80, 100), (400, 90, 400), (400.5, 90, 401), (120, 120, 100)],
    ids=["within", "rows are truncated", "rounded up", "one large request"],
)
def test_a_batch_within_the_limit_is_one_call_though_its_rows_cost_more(
    rows: float, padded: float, limit: int
) -> None:
    ran = batch_of(submitted(ONE), rows=rows, padded=padded, count=1)

    batch, _ = to_frame(ran, ApiSettings(cost="bytes", mb_max_batch_size=100), batch_id="x-1")

    assert batch.limit_rows == limit


def test_without_a_cost_bytes_do_not_count() -> None:
    ran = batch_of(submitted(OLD, rows=200), rows=200, padded=90)

    batch, _ = to_frame(ran, ApiSettings(mb_max_batch_size=100), batch_id="x")

    assert batch.limit_rows == 100


def test_a_reason_names_the_place_in_the_body_of_its_request() -> None:
    """The worker knows only the rows: here, that of a request without a list, and one of two rows."""
    payloads = [Marshalled(b"1", rows=1), Marshalled(b"2,3", rows=2, single=False)]
    ran = batch_of(*(submitted(asked, rows=asked.rows) for asked in payloads))
    reasons: dict[int, list[str | RowPath]] = {0: ["bad: ", RowPath(0, ("a",))], 1: [RowPath(1), ": worse"]}
    reply = Reply(1, True, 0.1, [400, 400], [1, 1], [], reasons=reasons)

    result = from_frame(ran, Executed(reply, [b"x", b"y"]))

    assert isinstance(result, BatchResult)
    assert [one.body for one in result.results] == [b"bad: `$.a`", b"`$[1]`: worse"]


@pytest.mark.parametrize(
    "meta",
    [
        Meta("a/b", "", (("x-header", "v" * 1000),) * 64),
        Meta("a/b", "", (("x", ""),) * 256),
        Meta("a/b", "q" * 60_000),
        Meta("c" * 60_000),
    ],
    ids=["large headers", "many headers", "query", "content type"],
)
def test_headers_count_as_bytes_of_their_request(meta: Meta) -> None:
    """Otherwise a batch of more than a thousand requests could exceed the largest header of a frame."""
    one = Marshalled(b"x", rows=1, meta=meta, form=RawForm())
    count = 64 * 2**20 // one.size_bytes
    ran = batch_of(*[submitted(one)] * count)

    batch, _ = to_frame(ran, ApiSettings(mb_max_batch_size=10**6), batch_id="x")

    assert len(msgspec.msgpack.encode(batch)) <= MAX_HEADER_BYTES


def test_a_frame_names_the_requests_of_bulk() -> None:
    bulk = submitted(ONE)
    bulk.bulk = True
    for requests, expected in (((submitted(ONE), bulk), [False, True]), ((submitted(ONE),), None)):
        batch, _ = to_frame(batch_of(*requests), ApiSettings(), batch_id="x-1")
        assert batch.bulk == expected


@pytest.mark.parametrize(
    ("overlaps", "prepare_s", "seconds"), [(True, 0.1, 0.3), (True, 0.5, 0.5), (False, 0.1, 0.9)]
)
def test_while_batches_overlap_a_result_has_the_time_of_the_slower_side(
    overlaps: bool, prepare_s: float, seconds: float
) -> None:
    """The time that the worker says contains the wait for the batch before."""
    ran = batch_of(submitted(Marshalled(b"1", rows=1), rows=1))
    reply = Reply(1, True, 0.9, [200], [1], [(1, 0.3)], stages_s=(prepare_s, 0.2, 0.1), overlaps=overlaps)

    result = from_frame(ran, Executed(reply, [b"x"]))

    assert result.chunks[0][1] == pytest.approx(seconds)
    assert result.prepare_s == (prepare_s if overlaps else None)


@pytest.mark.parametrize("chunks", [[], [(1.0, 0.1)]])
def test_a_batch_that_the_worker_cancelled_at_its_timeout_has_timed_out(
    chunks: list[tuple[float, float]],
) -> None:
    ran = batch_of(submitted(Marshalled(b"1", rows=1), rows=1))
    reply = Reply(1, False, 0.1, [504], [1], chunks, timed_out=True)

    assert from_frame(ran, Executed(reply, [b"x"])).status == "timed_out"


@pytest.mark.parametrize(("worked", "status"), [(True, "worked"), (False, "failed")])
def test_a_stream_has_no_calls_to_measure(worked: bool, status: str) -> None:
    """It works nevertheless, unlike a batch whose requests are all invalid."""
    reply = Reply(1, worked, 0.1, [200], [1], [])
    for sink, expected in ((cast(Sink, object()), status), (None, "failed")):
        ran = batch_of(submitted(Marshalled(b"1", rows=1, sink=sink), rows=1))
        assert from_frame(ran, Executed(reply, [b"x"])).status == expected
