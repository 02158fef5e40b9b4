"""The document as a whole: one moment, and one figure for each thing."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.gateway.pages.status.any_figures import NOT_READY, any_figures
from tests.gateway.pages.status.staged import FAILURE, figures, recent, stats, work
from uncork_dispatcher import ApiStats, WorkStats
from uncork_gateway.backends.slot import BackendSlot
from uncork_gateway.pages.status.document import Api, Failure, Status
from uncork_gateway.pages.status.figures import Figures
from uncork_gateway.pages.status.formatting import SERVICE, ms, number, percent
from uncork_gateway.pages.status.status_builder import ServedApi, StatusBuilder
from uncork_gateway.telemetry.recent import Recent
from uncork_gateway.telemetry.recorder import FinishedBatch


class Stage:
    """A front end, a dispatcher and a recorder with the test's figures."""

    def __init__(self, *apis: Figures) -> None:
        self._apis = apis
        self._work = apis[0].work if apis else work(1)
        self.draining = False
        self.ready = asyncio.Event()
        self.ready.set()
        self.any_ready = self._work.workers > 0
        self.not_ready_reason = NOT_READY
        self.server = "S"
        self.restarts = 0
        self.now = 5000.0
        self.asked: list[float] = []

    def document(self, **options: Any) -> Status:
        """Return the document."""
        return self.builder(**options).status()

    def builder(self, **options: Any) -> StatusBuilder:
        return StatusBuilder(
            self,
            self,
            dispatcher=self,
            recorder=self,  # type: ignore[arg-type]
            names=SERVICE,
            clock=self._clock,
            wall_clock=lambda: 1030.0,
            **options,
        )

    def _clock(self) -> float:
        self.now += 1
        return self.now

    # The front end

    def served_apis(self) -> dict[str, ServedApi]:
        return {one.stats.name: ServedApi(weighs=one.weighs, streams=one.streams) for one in self._apis}

    def failure(self, api: str) -> Failure | None:
        return next(one.failure for one in self._apis if one.stats.name == api)

    def slots(self) -> Sequence[BackendSlot]:
        return [BackendSlot(index, "idle") for index in range(self._work.workers)]

    # The dispatcher

    def stats(self) -> list[ApiStats]:
        return [one.stats for one in self._apis]

    def work(self) -> WorkStats:
        return self._work

    # The recorder

    def recent(self, api: str, now: float) -> Recent:
        self.asked.append(now)
        return next(one.recent for one in self._apis if one.stats.name == api)

    def batches_after(self, number: int) -> list[FinishedBatch]:
        """None."""
        return []


def named(name: str, window: Recent, **changes: Any) -> Figures:
    """Return the figures of an API with a name."""
    return figures(stats({"name": name}), recent=window, **changes)


def test_all_of_it_is_of_one_moment() -> None:
    stage = Stage(named("a", recent()), named("b", recent()), named("c", recent()))
    document = stage.document()

    assert len(set(stage.asked)) == 1
    assert document.uptime_s == stage.asked[0] - 5001.0
    assert document.time == 1030.0


FINE, HALF = recent(batches=100), recent(batches=100, errors={500: 50})
ALL = recent(errors={500: 3})


@pytest.mark.parametrize(
    ("windows", "state", "says"),
    [
        ([FINE, FINE], "ready", "1 worker is ready."),
        (
            [FINE, HALF],
            "degraded",
            "1 worker is ready. b is degraded: 33 % of its requests ended in an error.",
        ),
        (
            [HALF, ALL],
            "failing",
            "1 worker is ready. a is degraded: 33 % of its requests ended in an error. b is failing: 100 % "
            "of its requests ended in an error.",
        ),
        (
            [FINE, recent(batches=10, errors={502: 45}, sheds={"deadline": 45})],
            "failing",
            "1 worker is ready. b is failing: 45 % of its requests ended in an error, 45 % of its requests "
            "were refused.",
        ),
    ],
)
def test_the_worst_api_is_the_state_of_the_whole(windows: list[Recent], state: str, says: str) -> None:
    document = Stage(*map(named, "ab", windows)).document()

    assert (document.state, document.sentence) == (state, says)


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
    assert "the handler raised IndexError (service.py:12)" in now.sentence
    assert before.failure is not None
    assert "IndexError" not in before.sentence + before.advice[0].text
    assert "the handler answered 500" in before.sentence


def test_time_that_other_apis_take_is_of_the_same_window() -> None:
    busy = named("a", recent(batches=100, seconds=30, rate=430))
    [since_long, _] = Stage(busy, named("b", recent(batches=1000, seconds=30))).document().apis
    [since_now, _] = Stage(busy, named("b", recent(batches=100, seconds=1.2))).document().apis

    assert since_long.sentence.endswith("432 rows/s, but spent 40 % of the time on other apis.")
    assert since_now.sentence.endswith("The workers limit it: 1 worker can answer 432 rows/s.")


def one(text: str, pattern: str) -> Iterator[tuple[str, ...]]:
    """Yield the groups of each match."""
    for found in re.finditer(pattern, text):
        yield found.groups()


def rows_of(value: float | None) -> str:
    """Format rows as sentences do; unknown figures appear in none."""
    return "unknown" if value is None else number(value)


def time_of(part: msgspec.Struct | None, name: str) -> str:
    """Format a time of an optional part of the document."""
    return "unknown" if part is None else ms(getattr(part, name) / 1000)


NUMBER, TIME = r"([\d.]+|any number)", r"([\d.]+ m?s|any time)"
UNIT = r"(?:rows?|units? of cost)"
FIGURES: dict[str, Callable[[Api], tuple[str, ...]]] = {
    rf"{NUMBER} {UNIT}/s arrived": lambda api: (rows_of(api.rate_rows),),
    rf"can answer ((?:at least )?){NUMBER} {UNIT}/s": lambda api: (
        "at least " if api.capacity_is_least else "",
        rows_of(api.capacity_rows),
    ),
    rf"p99 (?:latency )?was {TIME}": lambda api: (time_of(api.latency, "p99_ms"),),
    rf"p50 latency was {TIME}": lambda api: (time_of(api.latency, "p50_ms"),),
    rf"spent {TIME} queued": lambda api: (time_of(api.shares, "queue_ms"),),
    rf"and {TIME} in (?:its|their) batch": lambda api: (time_of(api.shares, "batch_ms"),),
    rf"batches of {NUMBER} {UNIT}(?: \([^)]*\))? on average": lambda api: (rows_of(api.mean_batch_rows),),
    rf"A batch has {NUMBER} {UNIT} on average": lambda api: (rows_of(api.mean_batch_rows),),
    rf"full with {NUMBER} {UNIT} of": lambda api: (rows_of(api.mean_batch_rows),),
    rf"with {NUMBER} {UNIT} in each": lambda api: (rows_of(api.balanced_rows),),
    rf"takes {TIME} plus {TIME} per": lambda api: (
        time_of(api.estimate, "intercept_ms"),
        time_of(api.estimate, "slope_ms"),
    ),
    r"(\d+) of (\d+) requests? ended in an error": lambda api: (
        str(sum(api.errors.values())),
        str(api.answered),
    ),
    r"(\d+) of (\d+) requests? (?:\([^)]*\) )?(?:was|were) refused": lambda api: (
        str(api.refused),
        str(api.answered),
    ),
    r"(?:requests? \(|^)([^(]* %)\)? (?:of the requests )?(?:was|were) refused": lambda api: (
        percent(api.refused_share or 0.0),
    ),
    r"goal(?: of)? \(?(?:\w* )?([\d.]+ m?s)": lambda api: (time_of(api, "goal_ms"),),
}


@given(made=any_figures(), other=any_figures())
def test_no_two_figures_of_one_thing_differ(made: Figures, other: Figures) -> None:
    """Every figure in a sentence or advice equals its field."""
    renamed = other.stats._replace(name="slow")
    document = Stage(made, figures(renamed, recent=other.recent, work=other.work, goal_s=0.3)).document()
    for api in document.apis:
        texts = [api.sentence, api.why_this_size, api.why_refused or "", *[one.text for one in api.advice]]
        for text in texts:
            for pattern, field in FIGURES.items():
                for told in one(text, pattern):
                    assert told == field(api), (text, pattern)


def test_the_patterns_find_what_they_are_for() -> None:
    """Otherwise the property above would check nothing."""
    window = recent(
        batches=300, each=6, rows=2, reason="full", sheds={"deadline": 900, "client_deadline": 90},
        errors={500: 300}, rate=900, took_s=0.5,
    )  # fmt: skip
    texts = []
    for cap, goal_s in ((32, 0.3), (4, 0.03)):
        api = Stage(figures(stats({"max_batch_rows": cap}), recent=window, goal_s=goal_s)).document().apis[0]
        texts += [api.sentence, api.why_this_size, api.why_refused or "", *[one.text for one in api.advice]]
    balanced = Stage(figures(recent=recent(batches=900, each=6, rate=300))).document().apis[0]
    text = "\n".join([*texts, balanced.sentence])

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


def test_the_cheap_look_has_the_same_figures_of_the_first_apis() -> None:
    """All but the share of the others."""
    stage = Stage(named("a", recent(batches=100)), named("b", recent(batches=30)), named("c", recent()))
    looked = stage.builder().figures(2)
    shown = stage.builder(has_goal=False).figures(5)
    assert [one.stats.name for one in looked] == ["a", "b"]
    assert [(one.recent.requests, one.goal_s) for one in looked] == [(100, 0.3), (30, 0.3)]
    assert [(one.recent.requests, one.goal_s) for one in shown] == [(100, None), (30, None), (0, None)]
