"""When advice is given; ``test_sentences.py`` has its words."""

from __future__ import annotations

import re
from pathlib import Path

from tests.gateway.pages.status.staged import figures, recent, stats
from uncork_dispatcher import Estimate
from uncork_gateway.pages.status.advise import ADVICE, advise
from uncork_gateway.pages.status.figures import Figures
from uncork_gateway.pages.status.formatting import SERVICE

FULL = recent(batches=30, each=4, reason="full", rate=100)
BY_ROWS = Estimate(intercept_s=0.0001, slope_s=0.002, spread=0.1, earned_rows=64)
CAP_4 = {"max_batch_rows": 4}


def codes(made: Figures) -> set[str]:
    """Return the codes of the advice."""
    return {one.code for one in advise(made, SERVICE)}


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


def test_a_pool_of_connections_is_no_closed_loop() -> None:
    pooled = stats(returning_share=1.0, clients=56)

    assert "closed_loop" not in codes(figures(pooled, recent=recent(batches=30, each=3, rate=200)))


def test_what_streams_cannot_be_merged() -> None:
    assert codes(figures(stats({"policy": "none"}, limit_rows=1), streams=True)) == set()
