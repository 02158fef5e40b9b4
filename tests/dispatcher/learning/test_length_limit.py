"""The length at which a model truncates its rows, from the times of batches."""

from __future__ import annotations

import math
import random
from collections.abc import Callable

import pytest

from uncork_dispatcher.learning.length_limit import LengthLimit


def learned(
    work: Callable[[int, float], float],
    *,
    batches: int = 1500,
    noise: float = 0.1,
    seed: int = 1,
    limit: LengthLimit | None = None,
    largest: int = 16,
) -> LengthLimit:
    """Return what was learned from batches of up to ``largest`` rows whose lengths are lognormal."""
    random_, limit = random.Random(seed), limit or LengthLimit()
    for _ in range(batches):
        number, longest = random_.randint(1, largest), 64 * random_.lognormvariate(0, 1)
        limit.observe(
            number, longest, (0.002 + 2e-5 * work(number, longest)) * random_.lognormvariate(0, noise)
        )
    return limit


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("truth", [32, 64, 100])
def test_the_limit_is_found_to_a_quarter(truth: float, seed: int) -> None:
    limit = learned(lambda number, longest: number * min(longest, truth), seed=seed)
    assert truth / 1.25 < limit.length < truth * 1.25


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("noise", [0.0, 0.3])
@pytest.mark.parametrize(
    "work",
    [
        lambda number, longest: number * longest,
        lambda number, longest: number * longest * (1 + longest / 500),
        lambda number, longest: (number * longest) ** 0.9 * 2,
        lambda number, longest: number * 64,
    ],
    ids=["linear", "quadratic", "sublinear", "rows only"],
)
def test_no_limit_is_found_where_there_is_none(
    work: Callable[[int, float], float], noise: float, seed: int, request: pytest.FixtureRequest
) -> None:
    limit = learned(work, noise=noise, seed=seed)
    if "rows only" in request.node.callspec.id:
        assert limit.length < 64  # lengths make no difference at all
    else:
        assert limit.length == math.inf


def test_a_limit_goes_when_the_model_changes() -> None:
    limit = learned(lambda number, longest: number * min(longest, 64))
    assert limit.length < 100
    learned(lambda number, longest: number * longest, limit=limit)
    assert limit.length == math.inf


@pytest.mark.parametrize("seconds", [0.0, 0.01])
def test_equal_lengths_or_no_times_show_no_limit(seconds: float) -> None:
    limit = LengthLimit()
    assert not any(limit.observe(number, 100, seconds * number) for number in [1, 2, 3, 4] * 50)


def test_the_batches_are_those_with_the_limit() -> None:
    limit = learned(lambda number, longest: number * min(longest, 64), largest=1)
    assert max(size for size, _ in limit.batches()) == limit.length
