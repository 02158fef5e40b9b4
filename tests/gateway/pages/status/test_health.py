"""Whether an api answers."""

from __future__ import annotations

from typing import Any

import pytest

from tests.gateway.pages.status.staged import FAILURE, figures, recent
from uncork_gateway.pages.status.formatting import PROXY, SERVICE
from uncork_gateway.pages.status.health import state_of, what_failed


@pytest.mark.parametrize(
    ("lately", "state"),
    [
        ({}, "ok"),
        ({"batches": 100}, "ok"),
        ({"batches": 99, "errors": {500: 1}}, "ok"),
        ({"batches": 98, "errors": {500: 2}}, "degraded"),
        ({"batches": 98, "sheds": {"deadline": 2}}, "degraded"),
        ({"batches": 98, "errors": {500: 1}, "sheds": {"deadline": 1}}, "degraded"),
        ({"batches": 51, "errors": {500: 49}}, "degraded"),
        ({"batches": 50, "errors": {500: 50}}, "failing"),
        ({"batches": 50, "errors": {502: 20}, "sheds": {"no_worker": 20, "client_deadline": 10}}, "failing"),
        ({"batches": 1, "errors": {503: 1}}, "failing"),
        ({"errors": {500: 1}}, "failing"),
        ({"batches": 1, "statuses": {422: 99, 499: 9}}, "ok"),
        ({"statuses": {422: 99}, "errors": {500: 1}}, "failing"),
    ],
)
def test_the_state_is_the_share_that_got_no_answer(lately: dict[str, Any], state: str) -> None:
    """From one in a hundred, and from half on; what clients did wrong makes no difference."""
    assert state_of(recent(**lately)) == state


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
    assert what_failed(figures(lately=recent(errors=errors), failure=FAILURE), SERVICE) == told


def test_an_error_whose_cause_is_not_known_is_told_by_its_status() -> None:
    made = figures(lately=recent(batches=20, errors={500: 10}))

    assert what_failed(made, PROXY) == "10 of 30 requests ended in an error: the model server answered 500"


def test_a_single_error_among_many_answers_is_no_news() -> None:
    assert what_failed(figures(lately=recent(batches=200, errors={500: 2})), SERVICE) is None
