"""The document as a whole: one moment, and one figure for each thing."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.gateway.pages.status.any_figures import any_figures
from tests.gateway.pages.status.stage import Stage, named
from tests.gateway.pages.status.staged import FAILURE, figures, recent, stats, work
from uncork_dispatcher import RunningBatch
from uncork_dispatcher.learning.measures import Padding
from uncork_dispatcher.wording import exact, ms, number, percent
from uncork_gateway.pages.status import document
from uncork_gateway.pages.status.document import Api, Status
from uncork_gateway.pages.status.figures import Figures
from uncork_gateway.telemetry.recent import Recent


def test_all_of_it_is_of_one_moment() -> None:
    stage = Stage(named("a", recent()), named("b", recent()), named("c", recent()))
    document = stage.document()

    assert len(set(stage.asked)) == 1
    assert document.uptime_s == stage.asked[0] + 1 - 5001.0
    assert document.time == 1030.0


FINE, HALF = recent(batches=100), recent(batches=100, errors={500: 50})
ALL = recent(errors={500: 3})


@pytest.mark.parametrize(
    ("windows", "state"),
    [([FINE, FINE], "ready"), ([FINE, HALF], "degraded"), ([HALF, ALL], "failing")],
)
def test_the_worst_api_is_the_state_of_the_whole(windows: list[Recent], state: str) -> None:
    assert Stage(*map(named, "ab", windows)).document().state == state


def test_without_a_worker_nothing_else_counts() -> None:
    stage = Stage(named("a", ALL, work=work(0)))
    assert stage.document().state == "not_ready"
    stage.ready.clear()
    assert stage.document().state == "starting"
    stage.draining = True
    assert stage.document().state == "draining"


def test_a_failure_of_long_ago_is_no_cause_of_what_fails_now() -> None:
    made = named("a", recent(errors={500: 30}), failure=FAILURE)
    old = named("a", recent(errors={500: 30}), failure=msgspec.structs.replace(FAILURE, last=900.0))

    [now], [before] = Stage(made).document().apis, Stage(old).document().apis
    assert now.failure == FAILURE
    assert "IndexError (service.py:12)" in now.advice[0].text
    assert before.failure is not None
    assert "IndexError" not in before.advice[0].text


def test_time_that_other_apis_take_is_of_the_same_window() -> None:
    busy = named("a", recent(batches=100, seconds=30, rate=430))
    [since_long, _] = Stage(busy, named("b", recent(batches=1000, seconds=30))).document().apis
    [since_now, _] = Stage(busy, named("b", recent(batches=100, seconds=1.2))).document().apis

    assert since_long.sentence.endswith(", but other APIs take 40 % of the time.")
    assert "other APIs" not in since_now.sentence


def test_an_api_with_reserved_workers_has_no_neighbors() -> None:
    """The other two share a worker: the batches of one take longer than the goal of the other."""
    late = recent(batches=100, queued_s=1.0, took_s=1.5)
    reserved = figures(stats({"name": "reserved", "workers": 1}), recent=late)
    slow = named("slow", recent(batches=20, ran_s=2.0, took_s=2.1), goal_s=60.0)
    first, *others = Stage(reserved, named("fast", late), slow).document().apis

    codes = [[advice.code for advice in api.advice] for api in (first, *others)]
    assert ["long_neighbor" in found for found in codes] == [False, True, False]
    [text] = [advice.text for advice in others[0].advice if advice.code == "long_neighbor"]
    assert text.startswith("A batch of slow takes 2,000 ms on the same workers")
    assert "other APIs" not in first.sentence
    assert first.workers == 1


def one(text: str, pattern: str) -> Iterator[tuple[str, ...]]:
    """Yield the groups of each match."""
    for found in re.finditer(pattern, text):
        yield found.groups()


def texts_of(api: Api) -> list[str]:
    return [api.sentence, api.why_this_size, api.why_refused or "", *[one.text for one in api.advice]]


def rows_of(value: float | None) -> str:
    """Format rows as sentences do; unknown figures appear in none."""
    return "unknown" if value is None else number(value)


def time_of(part: msgspec.Struct | None, name: str) -> str:
    """Format a time of an optional part of the document."""
    return "unknown" if part is None else ms(getattr(part, name) / 1000)


NUMBER, TIME, SHARE = r"([\d.,]+|any number)", r"([\d.,]+ m?s|[\d.,]+ µs|any time)", r"([\w ]*\d+ %)"
UNIT = r"(?:rows?|units? of cost)"
FIGURES: dict[str, Callable[[Api], tuple[str, ...]]] = {
    rf"{NUMBER} {UNIT}/s arrived": lambda api: (rows_of(api.rate_rows),),
    rf"can answer (about|at least) {NUMBER} {UNIT}/s": lambda api: (
        "at least" if api.capacity_is_least else "about",
        rows_of(api.capacity_rows),
    ),
    rf"p99 latency was {TIME}": lambda api: (time_of(api.latency, "p99_ms"),),
    rf"The mean batch has {NUMBER} {UNIT}": lambda api: (rows_of(api.mean_batch_rows),),
    rf"full at {NUMBER} {UNIT} of": lambda api: (rows_of(api.mean_batch_rows),),
    rf"([\d,]+) of ([\d,]+) requests? \({SHARE}\) failed": lambda api: (
        exact(sum(api.errors.values())),
        exact(api.answered),
        percent(api.error_share or 0.0),
    ),
    rf"refused ([\d,]+) of ([\d,]+) requests? \({SHARE}\)": lambda api: (
        exact(api.refused),
        exact(api.answered),
        percent(api.refused_share or 0.0),
    ),
    r"goal of ([\d.,]+) ms": lambda api: (exact(api.goal_ms or 0.0),),
}


@given(made=any_figures(), other=any_figures())
def test_no_two_figures_of_one_thing_differ(made: Figures, other: Figures) -> None:
    """Every figure in a sentence or advice equals its field."""
    renamed = other.stats._replace(name="slow")
    document = Stage(made, figures(renamed, recent=other.recent, work=other.work, goal_s=0.3)).document()
    for api in document.apis:
        for text in texts_of(api):
            for pattern, field in FIGURES.items():
                for told in one(text, pattern):
                    assert told == field(api), (text, pattern)


def test_the_patterns_find_what_they_are_for() -> None:
    """Otherwise the property above would check nothing."""
    window = recent(
        batches=300, each=6, rows=2, reason="full", sheds={"deadline": 900, "client_deadline": 90},
        errors={500: 300}, rate=900, took_s=0.5,
    )  # fmt: skip
    all_failed, all_refused = recent(errors={500: 30}), recent(sheds={"no_worker": 30})
    made = [figures(recent=one) for one in (recent(batches=900, each=6, rate=300), all_failed, all_refused)]
    for cap, goal_s in ((32, 0.3), (4, 0.03)):
        api = stats({"max_batch_rows": cap}, padding=Padding("longest_bytes", 0.12, 512.0))
        made.append(figures(api, recent=window, goal_s=goal_s))
    text = "\n".join(text for one in made for text in texts_of(Stage(one).document().apis[0]))

    assert [pattern for pattern in FIGURES if not re.search(pattern, text, re.MULTILINE)] == []


@given(made=any_figures())
def test_what_is_too_few_is_none(made: Figures) -> None:
    """Figures over too few requests are None."""
    [api] = Stage(made).document().apis

    chance = (api.rate_rows, api.mean_batch_rows, api.latency, api.shares, api.balanced_rows)
    if api.too_few_requests:
        assert chance == (None,) * 5
    else:
        assert api.rate_rows is not None
        assert api.latency is not None


@given(st.integers(0, 60), st.integers(0, 60))
def test_a_document_is_json(batches: int, errors: int) -> None:
    document = Stage(figures(recent=recent(batches=batches, errors={500: errors}))).document()

    assert msgspec.json.decode(msgspec.json.encode(document), type=Status) == document


@pytest.mark.parametrize(
    ("padding", "told"),
    [
        (None, None),
        (Padding("sum", 0.0), document.Padding(measure="sum", share=0.0, length_limit=None)),
        (Padding("longest", 0.1, 512), document.Padding(measure="longest", share=0.1, length_limit=512)),
    ],
)
def test_padding_is_told_once_it_is_known(padding: Padding | None, told: document.Padding | None) -> None:
    """JSON has no infinity: no limit is null."""
    [api] = Stage(figures(stats(padding=padding))).document().apis

    assert api.padding == told
    assert msgspec.json.decode(msgspec.json.encode(api), type=Api) == api


@pytest.mark.parametrize(
    ("windows", "workers", "share"),
    [
        # 100 batches of 12 ms each, in 30 s.
        ([recent(batches=100)], 1, 0.04),
        ([recent(batches=100), recent(batches=100)], 2, 0.04),
        ([recent(batches=100), recent(batches=100, seconds=3.0)], 1, 0.08),
        ([recent(batches=100, seconds=0.5)], 1, 1.0),
        ([recent()], 1, 0.0),
        ([recent(seconds=0.0)], 1, None),
        ([recent(batches=100)], 0, None),
        ([], 1, None),
    ],
)
def test_the_utilization_is_the_share_of_the_workers_time(
    windows: list[Recent], workers: int, share: float | None
) -> None:
    """That batches of all APIs took."""
    stage = Stage(*(named(f"api {at}", each, work=work(workers)) for at, each in enumerate(windows)))
    assert stage.document().utilization == (None if share is None else pytest.approx(share))


def test_the_utilization_counts_batches_that_run() -> None:
    """One that takes longer than the window counts for all of it."""
    running = [RunningBatch(0, "a", 1, 1, 500.0, 0.0), RunningBatch(1, "a", 1, 1, 6.0, 0.0)]
    window = recent(seconds=30.0)
    stage = Stage(named("a", window, work=work(2, running=running)))

    assert stage.document().utilization == pytest.approx((30 + 6) / 60)


def test_an_api_with_slots_of_its_own_is_busy_by_their_time() -> None:
    own = figures(stats({"name": "own", "concurrency": 4}), recent=recent(batches=1000), work=work(1))
    stage = Stage(own, named("other", recent(batches=100)))
    assert stage.document().utilization == pytest.approx(0.1)


def test_an_api_with_slots_of_its_own_has_no_neighbors() -> None:
    """The texts count its slots."""
    late = recent(batches=100, queued_s=1.0, took_s=1.5, rate=3000)
    own = figures(stats({"name": "own", "concurrency": 4}), recent=late, work=work(1))
    first, other = Stage(own, named("other", late)).document().apis

    assert "The bottleneck is the number of slots" in first.sentence
    assert "other APIs" not in first.sentence + other.sentence


def test_the_cheap_look_has_the_same_figures_of_the_first_apis() -> None:
    """All but the share of the others."""
    stage = Stage(named("a", recent(batches=100)), named("b", recent(batches=30)), named("c", recent()))
    looked = stage.builder().figures(2)
    shown = stage.builder(has_goal=False).figures(5)
    assert [one.stats.name for one in looked.values()] == list(looked) == ["a", "b"]
    assert [(one.recent.requests, one.goal_s) for one in looked.values()] == [(100, 0.3), (30, 0.3)]
    assert [(one.recent.requests, one.goal_s) for one in shown.values()] == [
        (100, None),
        (30, None),
        (0, None),
    ]


def test_the_cheap_look_counts_the_workers_that_an_api_has() -> None:
    """Of four, one is reserved for the second API."""
    window = recent(batches=100)
    stage = Stage(named("a", window, work=work(3)), named("reserved", window, work=work(1)))
    looked = stage.builder().figures(2).values()
    assert [one.work.workers for one in looked] == [3, 1]
    assert [one.capacity for one in looked] == [api.capacity_rows for api in stage.document().apis]
