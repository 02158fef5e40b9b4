"""Sentences about an API; ``sentences.txt`` has them."""

from __future__ import annotations

import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.gateway.pages.status.any_figures import NOT_READY, any_figures
from tests.gateway.pages.status.staged import figures, recent, stats, work
from uncork_gateway.pages.status.advise import ADVICE, advice_for
from uncork_gateway.pages.status.explain import sentence, waits_for, why_refused, why_this_size
from uncork_gateway.pages.status.figures import Figures
from uncork_gateway.pages.status.names import PROXY, SERVICE, Names
from uncork_gateway.telemetry.recent import Recent

CAP_4 = {"max_batch_rows": 4}
FULL = recent(batches=30, each=4, reason="full", rate=300, took_s=0.1)
QUEUED = recent(batches=30, each=4, reason="full", rate=300, took_s=0.1, queued_s=0.08)
ONE_BY_ONE = recent(batches=30, rows=4, reason="full", rate=220, took_s=0.018)


@pytest.mark.parametrize(
    "window",
    [recent(batches=1), recent(batches=19, statuses={422: 0}), recent(batches=300, seconds=0.4)],
    ids=["one", "nineteen", "too early"],
)
def test_few_requests_say_nothing(window: Recent) -> None:
    """Too few requests yield no rates, percentiles or means."""
    made = figures(stats(CAP_4), recent=window, goal_s=0.014)

    assert "arrived" not in sentence(made, SERVICE)
    assert "latency" not in sentence(made, SERVICE)
    assert why_this_size(made, SERVICE) == "Too few requests to explain the batch size."
    assert (made.limited_by, advice_for(made, SERVICE)) == ("nothing", [])


def test_a_single_error_among_many_answers_is_no_news() -> None:
    made = figures(recent=recent(batches=400, errors={500: 2}, sheds={"deadline": 2}))

    assert made.state == "ok"
    assert not re.search("failed|refused", sentence(made, SERVICE))


def test_few_errors_and_few_refusals_that_degrade_an_api_together_are_told() -> None:
    made = figures(recent=recent(batches=984, errors={500: 8}, sheds={"deadline": 8}))

    assert made.state == "degraded"
    assert re.search("8 of .* failed.*refused 8 of ", sentence(made, SERVICE))


@pytest.mark.parametrize(
    ("made", "limit"),
    [
        (figures(work=work(0), not_ready_reason=NOT_READY), "workers"),
        (figures(stats(smallest_rows=200.0), recent=recent(batches=30)), "goal"),
        (figures(recent=recent(batches=30, each=32, reason="full", rate=700)), "workers"),
        (figures(stats(CAP_4), recent=FULL), "cap"),
        (figures(stats(CAP_4, slope_error_s=math.inf), recent=FULL), "workers"),
        (figures(stats(CAP_4), recent=ONE_BY_ONE), "workers"),
        (figures(stats(CAP_4), recent=FULL, others_share=0.6, busiest_other="slow"), "cap"),
        (figures(stats(CAP_4), recent=QUEUED, others_share=0.6, busiest_other="slow"), "workers"),
        (figures(recent=recent(batches=30, each=8, rate=400), goal_s=0.030), "goal"),
        (
            figures(stats(CAP_4), recent=recent(batches=30, each=4, reason="full", rate=90, took_s=0.4)),
            "nothing",
        ),
        (figures(recent=recent(batches=30, each=2, rate=100)), "nothing"),
        (figures(stats({"policy": "none"}, limit_rows=1), recent=recent(batches=30, rate=60)), "nothing"),
        (figures(stats({"policy": "none"}, limit_rows=1), recent=recent(batches=30, rate=83)), "workers"),
        (
            figures(
                stats({"policy": "none"}, limit_rows=1), recent=recent(batches=30, queued_s=0.575, rate=19)
            ),
            "nothing",
        ),
        (figures(recent=recent(batches=30, queued_s=0.575, rate=19)), "nothing"),
    ],
    ids=[
        "no worker",
        "out of reach",
        "workers",
        "cap",
        "cap, with batches of one size",
        "cap, with one request at a time",
        "cap, with another API",
        "cap, with requests that wait for another API",
        "goal",
        "cap at a low rate",
        "nothing",
        "policy none at a low rate",
        "policy none at full load",
        "policy none after a burst",
        "a policy that holds",
    ],
)
def test_what_limits(made: Figures, limit: str) -> None:
    """The limit whose removal would help."""
    assert made.limited_by == limit


@given(made=any_figures(), names=st.sampled_from([SERVICE, PROXY]))
def test_whatever_the_figures_the_words_can_be_read(made: Figures, names: Names) -> None:
    advice = advice_for(made, names)
    sentences = [sentence(made, names), why_this_size(made, names), why_refused(made, names)]
    texts = [*filter(None, sentences), waits_for(made, names), *(one.text for one in advice)]

    for text in texts:
        assert re.fullmatch(r"[A-Z0-9].*\.", text), text
        for wrong in (r"\bnan\b", r"\binf\b", "None", r"\de[+-]\d", "  ", r"\.\.", "{", r"-\d", " ,", "_$"):
            assert not re.search(wrong, text.replace("mb_max", "")), text
    assert list(dict.fromkeys(one.code for one in advice)) == [
        code for code in ADVICE if code in {one.code for one in advice}
    ]
    assert made.limited_by in ("nothing", "workers", "goal", "cap")
