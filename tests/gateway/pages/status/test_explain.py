"""Sentences about an API; ``sentences.txt`` has them."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.gateway.pages.status.any_figures import any_figures
from tests.gateway.pages.status.staged import figures, recent, stats
from uncork_gateway.pages.status.advise import ADVICE, advice_for
from uncork_gateway.pages.status.explain import sentence, waits_for, why_refused, why_this_size
from uncork_gateway.pages.status.figures import Figures
from uncork_gateway.pages.status.names import PROXY, SERVICE, Names
from uncork_gateway.telemetry.recent import Recent

CAP_4 = {"max_batch_rows": 4}


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
