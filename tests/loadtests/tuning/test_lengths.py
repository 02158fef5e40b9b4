"""The effect of lengths on batch times: what is measured, and what follows."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.loadtests.fake_server import serving_batches
from tests.loadtests.tuning.test_batch_times import PLAN, told
from uncork_loadtests.traffic.plan import Payload
from uncork_loadtests.tuning.lengths import (
    Lengths,
    Unmeasured,
    cost_of,
    findings,
    judge,
    measure,
    padding_in,
)

Answer = Callable[[Sequence[int]], bytes]
"""Makes the answer to each request of a batch from the lengths of all their bodies."""

BODIES = (b"x" * 10, b"x" * 12, *[b"x" * 40] * 17, b"x" * 100)


def measured(answer: Answer, *, bodies: Sequence[bytes] = BODIES, largest: int = 8) -> Lengths | None:
    async def run() -> Lengths | None:
        async with serving_batches(answer) as url:
            plan = replace(PLAN, url=url, payload=Payload(bodies=tuple(bodies)))
            return await asyncio.to_thread(measure, plan, largest=largest, tell=lambda _: None)

    return asyncio.run(run())


def test_a_model_that_pads_is_found() -> None:
    """Its batches take as long as if all bodies were as long as the longest."""
    seen: list[list[int]] = []

    def answer(lengths: Sequence[int]) -> bytes:
        seen.append(sorted(lengths))
        return told(len(lengths), 2 + 0.1 * len(lengths) * max(lengths))

    found = measured(answer)

    assert found is not None
    assert (found.requests, found.short_bytes, found.long_bytes) == (8, 40, 100)
    assert (found.short_ms, found.long_ms, found.mixed_ms) == pytest.approx((34, 82, 82))
    assert (found.depends, found.pads, found.cost) == (True, True, "bytes")
    # After five batches with padding, the gateway may keep different lengths apart.
    assert 3 <= seen.count([40] * 7 + [100]) / 8 < 5
    assert not [batch for batch in seen if batch not in ([40] * 8, [100] * 8, [40] * 7 + [100])]


@pytest.mark.parametrize(
    ("milliseconds", "depends"),
    [(lambda lengths: 2 + 0.1 * sum(lengths), True), (lambda lengths: 5.0 + len(lengths), False)],
)
def test_a_model_that_does_not_pad_is_found(
    milliseconds: Callable[[Sequence[int]], float], depends: bool
) -> None:
    found = measured(lambda lengths: told(len(lengths), milliseconds(lengths)), largest=3)

    assert found is not None
    assert found.requests == 3
    assert (found.depends, found.pads) == (depends, False)


@pytest.mark.parametrize(("bodies", "largest"), [([b"x" * 10] * 9 + [b"x" * 19], 8), (BODIES, 1)])
def test_bodies_of_about_one_length_are_not_measured(bodies: Sequence[bytes], largest: int) -> None:
    def answer(_: Sequence[int]) -> bytes:
        raise AssertionError

    assert measured(answer, bodies=bodies, largest=largest) is None


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (
            lambda lengths: told(len(lengths), 1.0, status="413 Big" if max(lengths) > 40 else "200 OK"),
            "^8 requests of 100 bytes failed: status 413",
        ),
        (
            lambda lengths: told(len(lengths) + len(set(lengths)) - 1, 1.0),
            "^8 requests of 40 and 100 bytes did not run as one batch",
        ),
        (
            lambda lengths: told(2 * len(lengths), 1.0),
            "^8 requests of 40 bytes did not run as one batch of one row each$",
        ),
    ],
)
def test_batches_that_fail_or_fall_apart_are_not_compared(answer: Answer, message: str) -> None:
    with pytest.raises(Unmeasured, match=message):
        measured(answer)


@pytest.mark.parametrize("requests", [2, 3, 8])
@pytest.mark.parametrize("pads", [True, False])
def test_noise_does_not_decide(requests: int, pads: bool) -> None:
    mixed = 40.0 if pads else 10 + 30 / requests
    noise = (0.95, 1.0, 1.05)

    assert judge(*([ms * one for one in noise] for ms in (10, 40, mixed)), requests=requests) == (True, pads)
    assert judge([10, 10, 13], [14, 14, 14], [14, 14, 14], requests=requests) == (False, False)


@given(st.lists(st.integers(1, 1000), min_size=1, max_size=20), st.integers(1, 16))
def test_padding_is_a_share(sizes: list[int], requests: int) -> None:
    found = padding_in(sizes, requests=requests)

    assert 0 <= found < 1
    assert (found == 0) == (requests == 1 or len(set(sizes)) == 1)


def test_padding_is_that_of_random_batches() -> None:
    # Of two random bodies, half the pairs have one of each: 3 of 8 units in 4 pairs of 2, 8, 8 and 8 units.
    assert padding_in([1, 4], requests=2) == pytest.approx(6 / 26, rel=0.1)


def row(**fields: object) -> bytes:
    return json.dumps(fields).encode()


@pytest.mark.parametrize(
    ("short", "long", "expected"),
    [
        (b'"ab"', b'"abcdef"', "bytes"),
        (b"ab", b"\xff" * 9, "bytes"),
        (row(text="ab"), row(text="ab" * 90), "bytes"),
        (row(id=1, text="ab"), row(id=2, text="ab" * 90), "text"),
        (row(id=1, tokens=[1]), row(id=2, tokens=[1] * 90), "tokens"),
        (row(id=1, text="ab"), row(id=2, other="ab" * 90), "bytes"),
        (row(query="ab", text="ab"), row(query="ab" * 40, text="ab" * 90), "bytes"),
        (row(id=1), row(id=10**20), "bytes"),
        (b"{}", b"{        }", "bytes"),
        (b"[1]", row(id=1, text="ab" * 90), "bytes"),
    ],
)
def test_the_field_that_makes_up_the_length_is_the_cost(short: bytes, long: bytes, expected: str) -> None:
    assert cost_of(short, long) == expected


SEEN = Lengths(
    requests=8, short_bytes=40, long_bytes=100, short_ms=34.0, long_ms=82.0, mixed_ms=80.123,
    depends=True, pads=True, padding=0.415, cost="bytes",
)  # fmt: skip


def test_findings_say_what_to_set() -> None:
    """A cost, where length matters and the API has none."""
    pads = findings(SEEN, has_cost=False)
    sums = findings(replace(SEEN, pads=False, cost="text"), has_cost=False)

    assert [one.code for one in pads] == ["lengths-padded", "give_cost"]
    assert pads[0].figures == {
        "requests": 8, "short": 40, "long": 100, "short_s": 0.034, "long_s": 0.082, "mixed_s": 0.080123,
        "padding": 0.415,
    }  # fmt: skip
    assert [one.code for one in sums] == ["lengths-summed", "give_cost"]
    assert [one.figures["cost"] for one in (pads[1], sums[1])] == ["bytes", "text"]
    assert findings(SEEN, has_cost=True) == pads[:1]
    [irrelevant] = findings(replace(SEEN, depends=False, pads=False), has_cost=False)
    assert irrelevant.code == "lengths-irrelevant"
