"""The parts of the benchmark of padded batches that measure nothing."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

from benchmarks.models.lengths import distributions
from benchmarks.models.padded import Run, run_of, without_void
from uncork_loadtests.generator.fleet import Outcome
from uncork_loadtests.generator.samples import SAMPLE, SHED
from uncork_loadtests.traffic.plan import Payload, Plan

LOGNORMAL, BIMODAL = distributions()


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
