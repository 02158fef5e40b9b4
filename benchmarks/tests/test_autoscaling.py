"""The run of the autoscaler: its arrivals, its windows, its tables and its picture."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.scale.autoscaling import (
    GOAL_MS,
    STEPS,
    Run,
    Sighting,
    Step,
    arrivals,
    lag_p99_ms,
    sighting,
    windows,
)
from benchmarks.scale.autoscaling_picture import draw
from benchmarks.scale.bench_autoscaling import paragraphs, sheets
from uncork_loadtests.generator.fleet import Outcome
from uncork_loadtests.generator.samples import SAMPLE, SHED, Samples
from uncork_loadtests.traffic.plan import Payload, Plan

PLAN = Plan(url="http://service/", payload=Payload(bodies=(b"[1]",)), rate=1.0)


def samples(*requests: tuple[float, float, int]) -> Samples:
    """Requests by scheduled time in s, latency in ms and status; the generator gets to each after 2 ms."""
    found = np.zeros(len(requests), dtype=SAMPLE)
    for number, (due_s, latency_ms, status) in enumerate(requests):
        found[number]["scheduled_s"] = due_s
        found[number]["fired_s"] = found[number]["sent_s"] = due_s + 0.002
        found[number]["done_s"] = due_s + latency_ms / 1000
        found[number]["status"] = status
    return found


def a_run(found: Samples, sightings: Sequence[Sighting] = ()) -> Run:
    return Run(
        steps=[Step(1, 10), Step(2, 5)],
        sightings=sightings,
        outcome=Outcome(
            plan=PLAN,
            samples=found,
            measured_s=15.0,
            cpu_s=(1.0,),
            connections=1,
            first_wrong="",
            interrupted=False,
        ),
        load_averages=(0.5, 1.25),
    )


def seen(at_s: float, wanted: int, target: int, ready: int) -> Sighting:
    return Sighting(at_s, wanted, target, ready, "a sentence")


RUN = a_run(
    samples((0.5, 100, 200), (5.0, GOAL_MS + 1, 200), (9.99, 1, SHED), (10.0, 200, 200), (12.0, 50, 500)),
    [seen(1, 1, 1, 1), seen(8, 3, 1, 1), seen(9.5, 3, 3, 1), seen(12, 3, 3, 3), seen(14, 2, 2, 3)],
)


def test_the_rate_doubles_and_halves_within_ten_minutes() -> None:
    rates = [step.rate for step in STEPS]

    assert rates == [40, 80, 160, 80, 40]
    assert sum(step.seconds for step in STEPS) < 600


def test_arrivals_have_the_rate_of_their_step() -> None:
    steps = [Step(50, 100), Step(200, 50)]
    found = list(arrivals(steps, seed=1))
    first = sum(at_s < 100 for at_s in found)

    assert found == sorted(found)
    assert found[0] == 0
    assert found[-1] < 150
    assert first == pytest.approx(5_000, rel=0.05)
    assert len(found) - first == pytest.approx(10_000, rel=0.05)
    assert found == list(arrivals(steps, seed=1)) != list(arrivals(steps, seed=2))


def test_requests_count_where_they_were_due() -> None:
    first, second, empty = windows(RUN.outcome.samples, [0, 10, 15, 20])

    assert (first.requests, first.in_goal, first.shed) == (3, 1, 1)
    assert first.p99_ms == pytest.approx(GOAL_MS + 1)
    assert (second.requests, second.in_goal, second.shed, second.seconds) == (2, 1, 0, 5)
    assert second.p99_ms == pytest.approx(200)
    assert (empty.requests, empty.p99_ms) == (0, None)


def test_steps_have_the_last_sighting_in_them() -> None:
    found = RUN.by_step()

    assert [(step.rate, window.requests) for step, window, _ in found] == [(1, 3), (2, 2)]
    assert [last.at_s for _, _, last in found if last] == [9.5, 14]
    assert [last for _, _, last in a_run(RUN.outcome.samples).by_step()] == [None, None]


def test_changes_are_those_of_the_target() -> None:
    assert [(before, now.target, now.at_s) for before, now in RUN.changes()] == [(1, 3, 9.5), (3, 2, 14)]


@pytest.mark.parametrize(
    ("scaling", "expected"),
    [
        (
            {"wanted": 3, "target": 2, "sentence": "the traffic needs 3 workers"},
            (3, 2, 2, "the traffic needs 3 workers"),
        ),
        (None, (2, 2, 2, "no decision yet")),
    ],
)
def test_a_sighting_counts_workers_that_are_ready(
    scaling: dict[str, Any] | None, expected: tuple[int, int, int, str]
) -> None:
    workers = [{"state": state, "index": 0} for state in ("idle", "starting", "busy", "lost")]
    status = json.dumps({"scaling": scaling, "workers": workers, "more": 1}).encode()

    assert sighting(status, at_s=7.0) == (7.0, *expected)


def test_the_tables() -> None:
    by_rate, changes, course = sheets(RUN)

    assert by_rate.rows == [
        ["1", "10", "0.3", "0.1", "33.3%", "1", "401", "3", "1"],
        ["2", "5", "0.4", "0.2", "50.0%", "0", "200", "2", "3"],
    ]
    assert changes.rows == [["10 s", "1", "3", "3"], ["14 s", "3", "2", "2"]]
    assert [(row[0], *row[-2:]) for row in course.rows] == [("0 s", "1 to 3", "1"), ("10 s", "2 to 3", "3")]
    assert {len(sheet.columns) - len(row) for sheet in (by_rate, changes, course) for row in sheet.rows} == {
        0
    }


def test_the_page_says_how_busy_the_machine_was() -> None:
    text = " ".join(paragraphs(RUN)[-1].split())

    assert "was 0.5 before the run and 1.2 at its end" in text
    assert lag_p99_ms(RUN.outcome) == pytest.approx(2.0)


def test_the_picture_is_the_same_for_the_same_run(tmp_path: Path) -> None:
    file = tmp_path / "autoscaling.svg"
    draw(RUN, file)
    first = file.read_text()
    draw(RUN, file)

    assert file.read_text() == first
    assert all(f">{label}</text>" in first for label in ("rows/s", "workers", "ready", "wanted now", "goal"))
