"""The pages of benchmarks/results, and the pure parts of the benchmarks that print them."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.__main__ import BENCHMARKS
from benchmarks.chaos import report as chaos
from benchmarks.harness.paths import ROOT
from benchmarks.harness.report import policies_sheet
from benchmarks.models import encoder
from benchmarks.models.agreement import TOLERANCE, largest_difference
from benchmarks.padding import bench as padding
from uncork_loadtests.compare import Comparison, LeftOut, Rounds, Turn, relate
from uncork_loadtests.traffic.plan import Payload, Plan

PLAN = Plan(url="http://service/", payload=Payload(bodies=(b"[1]",)), clients=4)


def turn(rate: float, p99_ms: float | None) -> Turn:
    return Turn(
        mean_ms=10.0,
        p50_ms=8.25,
        p99_ms=p99_ms,
        answered_per_s=rate,
        in_goal=None,
        batch_rows=4.0,
        gateway_cpu_us=150.0,
        workers_cpu_us=None,
        failure="",
        wrong=0,
        first_wrong="",
        void="",
    )


PAGES = {
    "chaos": chaos.PAGE,
    "chaos-hosts": chaos.HOSTS_PAGE,
    "encoder": encoder.PAGE,
    "padding": padding.PAGE,
}


@pytest.mark.parametrize("name", PAGES)
def test_the_committed_page_begins_as_its_script_prints_it(name: str) -> None:
    committed = (ROOT / "benchmarks" / "results" / f"{name}.md").read_text()
    printed = f"{PAGES[name].beginning()}```sh\n{PAGES[name].script}"

    assert committed[: len(printed)] == printed
    script, _, benchmark = PAGES[name].script.partition(" ")
    assert (ROOT / script).exists()
    assert script != "scripts/bench" or benchmark in BENCHMARKS


def test_policies_are_related_to_the_first_and_void_rounds_named() -> None:
    whole = [
        {"none": turn(10.0, 90.0), "cork": turn(30.0, 45.0)},
        {"none": turn(10.0, 90.0), "cork": turn(30.0, None)},
    ]
    rounds = Rounds(whole=whole, left_out=[LeftOut(number=2, policy="none", reason="it fell behind")])
    comparison = Comparison(
        target="service.py:Service", plan=PLAN, rounds=rounds, results=relate(["none", "cork"], whole)
    )

    found = policies_sheet(comparison, title="4 clients")

    assert found.rows[1] == ["cork", "30", "8.2", "-", "4.0", "0.150", "-", "2"]
    assert found.notes == [
        "requests/s, cork / none: 3.000 (3.000 .. 3.000)",
        "p50, cork / none: 1.000 (1.000 .. 1.000)",
        "p99, cork / none: -",
        "round 3 left out: none: it fell behind",
    ]


def test_numbers_that_are_close_agree() -> None:
    alone = [np.array([1.0, 2.0]), np.array([[3.0]]), np.array([])]
    together = [np.array([1.0, 2.0 - TOLERANCE / 2]), np.array([[3.0 + TOLERANCE / 4]]), np.array([])]

    assert largest_difference(alone, together) == pytest.approx(TOLERANCE / 2)
    assert largest_difference([], []) == 0
