"""Phrases about errors."""

from __future__ import annotations

import pytest

from tests.gateway.pages.status.staged import FAILURE, figures, recent
from uncork_gateway.pages.status.formatting import PROXY, SERVICE
from uncork_gateway.pages.status.phrases import what_failed


@pytest.mark.parametrize(
    ("errors", "told"),
    [
        ({500: 30}, "30 of 30 requests ended in an error: the handler raised IndexError (service.py:12)"),
        ({502: 1}, "1 of 1 request ended in an error: a worker was lost"),
        ({503: 2}, "2 of 2 requests ended in an error: the handler answered 503"),
        (
            {500: 25, 504: 3, 502: 2},
            "30 of 30 requests ended in an error: 25 because the handler raised IndexError (service.py:12), "
            "3 because a batch ran past its timeout, 2 because a worker was lost",
        ),
    ],
)
def test_what_failed_is_told_with_its_cause(errors: dict[int, int], told: str) -> None:
    assert what_failed(figures(recent=recent(errors=errors), failure=FAILURE), SERVICE) == told


def test_an_error_whose_cause_is_not_known_is_told_by_its_status() -> None:
    made = figures(recent=recent(batches=20, errors={500: 10}))

    assert what_failed(made, PROXY) == "10 of 30 requests ended in an error: the model server answered 500"


def test_a_single_error_among_many_answers_is_no_news() -> None:
    assert what_failed(figures(recent=recent(batches=200, errors={500: 2})), SERVICE) is None
