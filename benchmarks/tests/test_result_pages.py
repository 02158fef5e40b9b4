"""The pages of benchmarks/results, and the pure parts of the benchmarks that print them."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.__main__ import BENCHMARKS
from benchmarks.chaos import report as chaos
from benchmarks.harness.paths import ROOT
from benchmarks.models import encoder
from benchmarks.models.agreement import TOLERANCE, largest_difference
from benchmarks.padding import bench as padding

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


def test_numbers_that_are_close_agree() -> None:
    alone = [np.array([1.0, 2.0]), np.array([[3.0]]), np.array([])]
    together = [np.array([1.0, 2.0 - TOLERANCE / 2]), np.array([[3.0 + TOLERANCE / 4]]), np.array([])]

    assert largest_difference(alone, together) == pytest.approx(TOLERANCE / 2)
    assert largest_difference([], []) == 0
