"""When advice is given; ``test_sentences.py`` has its figures."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.gateway.pages.status.staged import figures, recent, stats
from uncork_dispatcher import Estimate
from uncork_dispatcher.learning.measures import Measure, Padding
from uncork_gateway.pages.status.advise import ADVICE, advice_for
from uncork_gateway.pages.status.figures import Figures
from uncork_gateway.pages.status.names import PROXY, SERVICE, Names
from uncork_gateway.telemetry.recent import Recent

FULL = recent(batches=30, each=4, reason="full", rate=100)
BY_ROWS = Estimate(intercept_s=0.0001, slope_s=0.002, spread=0.1, earned_rows=64)
CAP_4 = {"max_batch_rows": 4}


def codes(made: Figures, names: Names = SERVICE) -> set[str]:
    return {one.code for one in advice_for(made, names)}


def test_the_page_lists_every_code() -> None:
    page = (Path(__file__).parents[4] / "docs/reference/status.md").read_text()
    section = page.partition("## Advice")[2].partition("## ")[0]

    assert re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE) == list(ADVICE)


def test_an_idle_api_needs_no_advice() -> None:
    assert codes(figures()) == set()
    assert codes(figures(recent=recent(batches=30, each=6, rate=200))) == set()
    assert codes(figures(stats(CAP_4), recent=recent(batches=4, each=4, reason="full", rate=900))) == set()


def test_a_cap_that_gains_nothing_is_left_alone() -> None:
    full = FULL._replace(estimate=BY_ROWS)

    assert "raise_cap" not in codes(figures(stats(CAP_4), recent=full))
    assert "raise_cap" not in codes(figures(stats(CAP_4), recent=FULL, goal_s=0.021))


def test_a_queue_that_is_full_for_want_of_workers_is_not_to_grow() -> None:
    """A larger queue would fill too."""
    made = figures(recent=recent(batches=90, sheds={"queue_full": 9}, rate=900))

    assert "raise_queue" not in codes(made)
    assert "add_workers" in codes(made)


def test_what_streams_cannot_be_merged() -> None:
    assert codes(figures(stats({"policy": "none"}, limit_rows=1), streams=True)) == set()


@pytest.mark.parametrize(
    ("measure", "weighs", "names", "code"),
    [
        ("bytes", False, SERVICE, "give_cost"),
        ("longest_bytes", False, SERVICE, "give_cost"),
        ("longest", True, SERVICE, "noisy"),
        ("longest_bytes", True, SERVICE, "noisy"),
        ("longest_bytes", False, PROXY, "noisy"),
    ],
)
def test_a_cost_is_advised_instead_of_a_search_for_noise_where_it_helps(
    measure: Measure, weighs: bool, names: Names, code: str
) -> None:
    """A proxy has no setting for it."""
    noisy = Estimate(intercept_s=0.010, slope_s=0.002, spread=0.6, earned_rows=64)
    api = stats(padding=Padding(measure, 0.2))
    made = figures(api, recent=recent(batches=30, estimate=noisy), weighs=weighs)

    assert codes(made, names) & {"give_cost", "noisy"} == {code}


def test_padding_of_the_requests_is_no_fault_of_the_handler() -> None:
    by_rows = MIXED._replace(estimate=BY_ROWS)
    assert codes(figures(recent=by_rows, weighs=True)) >= {"slope_dominated"}
    assert not codes(figures(stats(padding=HALF), recent=by_rows, weighs=True)) & {"slope_dominated"}


def test_batches_that_are_full_of_padding_are_not_full_of_bytes() -> None:
    """Half of the cap of 32 is padding, so that 9 rows are more than half of what fits."""
    full = recent(batches=30, each=9, reason="full", rate=100)

    assert "raise_batch_bytes" in codes(figures(recent=full))
    assert "raise_batch_bytes" not in codes(figures(stats(padding=Padding("longest", 0.5)), recent=full))


MIXED = recent(batches=30, each=3, rows=8, took_s=1.0)
HALF = Padding("longest", 0.5)


@pytest.mark.parametrize(
    ("padding", "window", "advised"),
    [
        (HALF, MIXED, True),
        (None, MIXED, False),
        (Padding("longest_bytes", 0.5), MIXED, False),
        (Padding("longest", 0.49), MIXED, False),
        (HALF, recent(batches=30, each=3, rows=8, rate=10), False),
        (HALF, recent(batches=30, each=24, took_s=1.0), False),
        (HALF, recent(batches=30, each=1, rows=8, took_s=1.0), False),
        (HALF, MIXED._replace(estimate=None), False),
    ],
    ids=[
        "mixed",
        "unknown",
        "bytes",
        "little",
        "in time",
        "one row",
        "less than the fixed part",
        "no estimate",
    ],
)
def test_padding_is_no_fault_unless_clients_can_avoid_it(
    padding: Padding | None, window: Recent, advised: bool
) -> None:
    """Uncork limits the padding between requests; inside a request it cannot."""
    made = figures(stats(padding=padding), recent=window, weighs=True)

    assert ("split_requests" in codes(made)) == advised
