"""The parts of the benchmark of padded batches that measure nothing."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

from benchmarks.models.agreement import Agreement
from benchmarks.models.lengths import distributions
from benchmarks.models.padded import Cell, Run, run_of, without_void
from benchmarks.models.padded_tables import percentile, percentile_ratio
from uncork_loadtests.compare import Interval
from uncork_loadtests.generator.fleet import Outcome
from uncork_loadtests.generator.samples import SAMPLE, SHED
from uncork_loadtests.traffic.plan import Payload, Plan

LOGNORMAL, BIMODAL = distributions()
AGREEMENT = Agreement(requests=2, largest_batch=2, largest_difference=0.0)


def run(rate: float = 100.0, *, slower: float = 1.0, void: str = "", fault: str = "") -> Run:
    """A measurement with latencies of 1, 2, ... 1000 ms, or slower ones."""
    times = np.arange(1.0, 1001.0) * slower
    return Run(
        requests_per_s=rate,
        times=times,
        long_times=times[:50],
        rows_per_batch=8.0,
        padding=0.25,
        fault=fault,
        void=void,
    )


def cell(**rounds: list[Run]) -> Cell:
    return Cell(runtime="onnx", texts=LOGNORMAL, agreement=AGREEMENT, rounds=rounds, left_out=["why"])


def test_a_request_states_its_exact_length() -> None:
    for texts in (LOGNORMAL, BIMODAL):
        bodies = [msgspec.json.decode(body) for body in texts.bodies()]

        assert texts.bodies() == texts.bodies()
        assert [body["tokens"] for body in bodies] == list(texts.lengths)
        assert [len(body["ids"]) for body in bodies] == list(texts.lengths)


def test_a_run_tells_long_requests_from_others() -> None:
    samples = np.zeros(20, dtype=SAMPLE)
    samples["done_s"] = np.arange(1, 21) / 16
    samples["status"][:19] = 200
    samples["status"][19] = SHED
    samples["body_bytes"] = (90, *range(10, 28), 100)
    samples["queued_ms"] = samples["batch_ms"] = np.nan
    plan = Plan(url="http://service/", payload=Payload(bodies=(b"1",)), clients=1, goal_s=1.0)
    outcome = Outcome(
        plan=plan,
        samples=samples,
        measured_s=2.0,
        cpu_s=(0.1,),
        connections=1,
        first_wrong="",
        interrupted=False,
    )

    found = run_of(outcome, work=(60, 80))

    assert found.times == pytest.approx(np.arange(1, 20) * 62.5)
    # The other long request is shed.
    assert found.long_times == pytest.approx([62.5])
    assert found.padding == 0.25
    assert run_of(outcome, work=(0, 0)).padding == 0


def test_void_rounds_are_left_out_for_all() -> None:
    good, void = run(), run(void="it fell behind")

    assert without_void({"cork": [good, good, good], "FIFO": [good, void, good]}) == (
        {"cork": [good, good], "FIFO": [good, good]},
        ["round 2 left out: FIFO: it fell behind"],
    )


def test_percentiles_are_those_of_all_rounds() -> None:
    rounds = [np.arange(1.0, 61.0), np.arange(61.0, 101.0)]

    assert (percentile(rounds, 50), percentile(rounds, 99)) == (50, 99)
    assert percentile([rounds[0]], 99) is None
    assert percentile([], 99) is None


def test_the_ratio_of_percentiles_has_an_interval_over_rounds() -> None:
    times = np.arange(1.0, 201.0)

    assert percentile_ratio([times] * 3, by=[times * 4] * 3) == Interval(median=0.25, low=0.25, high=0.25)
    found = percentile_ratio([times, times, times * 2], by=[times] * 3)
    assert found is not None
    # Bootstrap draws the slow round three times or never.
    assert (found.low, found.high) == (1, 2)
    assert found.low < found.median < found.high
    assert percentile_ratio([times[:10]], by=[times]) is None
    # In a round as short as one slow batch, nothing may be answered.
    assert percentile_ratio([times, times], by=[times, times[:0]]) is None


def test_a_cell_fails_with_a_fault_or_without_a_valid_round() -> None:
    assert cell(cork=[run()]).faults == []
    assert cell(cork=[run(fault="1 x 500")]).faults == [f"onnx, {LOGNORMAL.name}: cork: 1 x 500"]
    assert cell(cork=[]).faults == [f"onnx, {LOGNORMAL.name}: no valid round remains"]
