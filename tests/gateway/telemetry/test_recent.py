"""Figures derived from the counts of a window."""

from __future__ import annotations

import math

import pytest

from tests.gateway.pages.status.staged import recent


def test_answers_are_told_apart() -> None:
    """4xx answers are excluded from the shares of errors and refusals."""
    window = recent(
        batches=50,
        statuses={422: 10, 499: 5},
        errors={500: 20, 503: 4},
        sheds={"deadline": 24, "no_room": 1, "client_deadline": 1},
    )

    assert (window.requests, window.client_errors, window.answered) == (115, 15, 100)
    assert (window.failed, window.refused) == (24, 26)
    assert (window.error_share, window.refused_share, window.refused_for_load) == (0.24, 0.26, 0.24)


def test_nothing_has_no_shares() -> None:
    assert (recent().error_share, recent().refused_share) == (0, 0)
    assert recent(statuses={422: 9}).error_share == 0


@pytest.mark.parametrize(
    ("batches", "seconds", "is_few"), [(19, 30, True), (20, 30, False), (20, 0.9, True), (20, 1, False)]
)
def test_few_requests_have_no_rate(batches: int, seconds: float, is_few: bool) -> None:
    window = recent(batches=batches, seconds=seconds, rate=14.1)

    assert window.is_few == is_few
    assert window.rate == (0 if is_few else pytest.approx(14.1))
    assert math.isinf(window.gap_s) == is_few


def test_rows_are_counted_as_the_limits_count_them() -> None:
    """Rows are units of cost where the API has one; here 3 per request."""
    window = recent(batches=30, each=2, rows=3, rate=60)

    assert (window.mean_rows, window.mean_requests, window.rows_per_request) == (6, 2, 3)
    assert window.gap_s == pytest.approx(0.05)


def test_time_on_the_way_is_what_is_left() -> None:
    """The rest is never negative, though refusals take less time than batches."""
    assert recent(batches=4).transport_s == pytest.approx(0.002)
    assert recent(batches=4, took_s=0.001).transport_s == 0
