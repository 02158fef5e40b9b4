"""Advice, proof and output of ``uncork tune``."""

from __future__ import annotations

import json
import math
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.expected import check_texts, printed
from tests.loadtests.pages_server import serving_pages, status
from uncork.cli.tune.tables import as_json, text
from uncork_dispatcher.advice import Advice
from uncork_loadtests.servers import BenchError
from uncork_loadtests.traffic.plan import Payload, Plan
from uncork_loadtests.tuning.batch_times import BatchTimes, Line, SizeTime
from uncork_loadtests.tuning.lengths import Lengths
from uncork_loadtests.tuning.search import (
    WANTED,
    Figures,
    Model,
    Proposal,
    capacity,
    caps,
    most,
    predict,
    smallest,
)
from uncork_loadtests.tuning.tune import (
    Proof,
    Tuned,
    TuningRequest,
    differences,
    faults,
    proof_plan,
    tune,
)

LINE = Line(intercept_ms=10.0, slope_ms=1.0, noise_cv=0.05, worst_rows=8, worst_deviation=-0.12, steps=(8,))
MODEL = Model(line=LINE, rows_per_request=1, overhead_ms=0.75, goal_ms=100.0, largest=64, requests=1000)
PLAN = Plan(url="http://service/", payload=Payload(bodies=(b"[1]",)), rate=1.0)
REQUEST = TuningRequest(
    target="m:S", plan=PLAN, goal_ms=100.0, rate=400.0, max_workers=4, max_batch_size=64, cores=2
)
FIGURES = Figures(p50_ms=20.0, p99_ms=40.0, in_goal=1.0, batch_rows=5.0)
PROPOSAL = Proposal(
    workers=2, mb_max_batch_size=32, mb_max_latency=99.2, rate=400.0, capacity=1600.0, predicted=FIGURES
)
PADS = Lengths(
    requests=8, short_bytes=10, long_bytes=100, short_ms=5.0, long_ms=20.0, mixed_ms=19.0,
    depends=True, pads=True, padding=0.4, cost="text",
)  # fmt: skip
PROOF = Proof(
    workers=2,
    rate=400.0,
    seconds=5.0,
    predicted=FIGURES,
    measured=FIGURES,
    failure="",
    gateway_cpu_us=200.0,
    wrong=0,
    first_wrong="",
    void="",
)
TUNED = Tuned(
    request=REQUEST,
    measured=BatchTimes(
        sizes=(SizeTime(rows=1, median_ms=11.0, times_ms=(11.0,)),),
        rows_per_request=1,
        overhead_ms=0.75,
        gateway_cpu_us=140.0,
        stopped="9 concurrent requests failed: status 500",
    ),
    model=MODEL,
    gateway_rate=5000.0,
    proposal=PROPOSAL,
    proof=PROOF,
)


Findings = list[tuple[str, dict[str, Any]]]
"""Codes and figures."""


def quiet(_: str) -> None:
    pass


@given(
    goal_ms=st.floats(0.1, 1e4),
    largest=st.integers(1, 2000),
    rows=st.integers(1, 64),
    slope=st.floats(0, 5),
)
def test_caps_are_within_the_goal(goal_ms: float, largest: int, rows: int, slope: float) -> None:
    line = replace(LINE, slope_ms=slope)
    model = replace(MODEL, line=line, goal_ms=goal_ms, largest=max(largest, rows), rows_per_request=rows)
    found = caps(model)

    assert found == sorted(set(found))
    assert all(rows <= cap <= model.largest and line.milliseconds(cap) < goal_ms for cap in found)
    assert bool(found) == (line.milliseconds(rows) < model.mb_max_latency)


def test_the_goal_of_the_gateway_leaves_room_for_the_way() -> None:
    assert MODEL.mb_max_latency == 99.2


def test_requests_of_many_rows_carry_less() -> None:
    many = replace(MODEL, rows_per_request=4)

    assert capacity(MODEL, workers=2, cap=40) == pytest.approx(2 * 40 / 0.05)
    assert capacity(many, workers=2, cap=40) == pytest.approx(2 * 10 / 0.05)
    assert capacity(many, workers=2, cap=43) == pytest.approx(2 * 10 / 0.05), "3 rows stay free"
    batch = predict(many, rate=200.0, workers=2, cap=40).predicted.batch_rows
    assert batch is not None
    assert batch >= 4


def test_a_worker_that_runs_several_batches_counts_as_several() -> None:
    found = predict(replace(MODEL, concurrency=4), rate=1500.0, workers=1, cap=32)

    assert found == replace(predict(MODEL, rate=1500.0, workers=4, cap=32), workers=1)


def test_the_overhead_is_part_of_the_latency() -> None:
    still = replace(MODEL, line=replace(LINE, noise_cv=0.0))
    found = predict(still, rate=1.0, workers=1, cap=8).predicted

    assert found.p50_ms == pytest.approx(11.75)
    assert found.in_goal == 1


def test_the_fewest_workers_are_advised() -> None:
    found = smallest(MODEL, rate=1500.0, max_workers=8, tell=quiet)

    assert found is not None
    assert found.met
    assert found.workers > 1
    fewer = [predict(MODEL, rate=1500.0, workers=found.workers - 1, cap=cap) for cap in caps(MODEL)]
    assert not any(one.met for one in fewer)


def test_what_cannot_be_kept_is_not_advised() -> None:
    near = smallest(MODEL, rate=840.0, max_workers=1, tell=quiet)

    assert near is not None
    assert not near.met
    assert smallest(MODEL, rate=5000.0, max_workers=1, tell=quiet) is None
    assert smallest(replace(MODEL, goal_ms=11.0), rate=1.0, max_workers=4, tell=quiet) is None


def test_the_highest_rate_keeps_the_goal() -> None:
    found = most(MODEL, workers=1)

    assert found is not None
    assert found.met
    assert found.rate < found.capacity
    assert not any(predict(MODEL, rate=1.5 * found.rate, workers=1, cap=cap).met for cap in caps(MODEL))


def test_no_rate_keeps_a_goal_below_a_batch() -> None:
    assert most(replace(MODEL, goal_ms=5.0), workers=1) is None


def test_a_burst_at_the_end_of_a_recording_counts(tmp_path: Path) -> None:
    """1500 even times and 500 at once; fewer simulated requests would end before the burst."""
    file = tmp_path / "times.csv"
    file.write_text("".join(f"{time}\n" for time in [*range(1500), *[1500] * 500]))
    replayed = f"replay:{file}"

    assert predict(MODEL, rate=200.0, workers=1, cap=64).met
    found = predict(replace(MODEL, arrivals=replayed), rate=200.0, workers=1, cap=64)
    assert found.predicted.in_goal < 0.9

    request = replace(REQUEST, plan=replace(PLAN, arrivals=replayed))
    assert [proof_plan(request, rate=rate).seconds for rate in (1000.0, 200.0, 20.0)] == [5.0, 10.0, 60.0]
    assert proof_plan(replace(request, seconds=3.0), rate=200.0).seconds == 3.0


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({}, []),
        ({"void": "too late"}, [("load-test-void", {"why": "too late"})]),
        (
            {"measured": None, "failure": "no response was successful"},
            [("load-test-failed", {"why": "no response was successful"})],
        ),
        ({"failure": "most requests failed"}, [("load-test-failed", {"why": "most requests failed"})]),
        ({"wrong": 2, "first_wrong": "sent x"}, [("wrong-responses", {"wrong": 2, "first": "sent x"})]),
        ({"measured": replace(FIGURES, in_goal=0.98)}, [("goal-missed", {"share": 0.98, "wanted": 0.99})]),
        (
            {"measured": replace(FIGURES, in_goal=0.94), "predicted": replace(FIGURES, in_goal=0.96)},
            [("goal-missed", {"share": 0.94, "wanted": 0.95})],
        ),
        ({"measured": replace(FIGURES, in_goal=0.955), "predicted": replace(FIGURES, in_goal=0.96)}, []),
        ({"measured": replace(FIGURES, p50_ms=27.0)}, [("latency-differs", {"name": "p50", "ratio": 1.35})]),
        ({"measured": replace(FIGURES, p99_ms=26.0)}, [("latency-differs", {"name": "p99", "ratio": 0.65})]),
        ({"measured": replace(FIGURES, p50_ms=25.0, p99_ms=None)}, []),
    ],
)
def test_a_proof_is_judged(changed: dict[str, Any], expected: Findings) -> None:
    proof = replace(PROOF, **changed)

    assert_advice([*faults(proof), *differences(proof)], expected)


def assert_advice(found: list[Advice], expected: Findings) -> None:
    assert [one.code for one in found] == [code for code, _ in expected]
    for one, (_, figures) in zip(found, expected, strict=True):
        for name, value in figures.items():
            assert one.figures[name] == (value if isinstance(value, str) else pytest.approx(value)), name


@pytest.mark.parametrize("figures", [{"p50_ms": 8.0}, {"p99_ms": 99.0}])
def test_a_goal_that_is_met_does_not_fail_because_latencies_were_predicted_wrongly(
    figures: dict[str, Any],
) -> None:
    """The difference is a warning."""
    tuned = replace(TUNED, proof=replace(PROOF, measured=replace(FIGURES, **figures)))
    assert tuned.failures == []
    assert len(tuned.warnings) == 1

    missed = replace(TUNED, proof=replace(PROOF, measured=replace(FIGURES, in_goal=0.5, **figures)))
    assert missed.failures == missed.warnings[:1]
    assert len(missed.warnings) == 2


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({}, []),
        (
            {"proposal": replace(PROPOSAL, predicted=replace(FIGURES, in_goal=0.9)), "proof": None},
            [("goal-not-met", {"goal_s": 0.1, "share": 0.9, "workers": 2, "wanted": 0.99})],
        ),
        (
            {"proposal": None, "proof": None, "model": replace(MODEL, goal_ms=5.0)},
            [("goal_out_of_reach", {"goal_s": 0.005, "needed_s": 0.01175, "rows": 1})],
        ),
        (
            {"proposal": None, "proof": None, "request": replace(REQUEST, rate=None)},
            [("goal-at-no-rate", {"goal_s": 0.1, "needed_s": 0.01175})],
        ),
        (
            {"proposal": None, "proof": None, "request": replace(REQUEST, rate=9000.0)},
            [("rate-above-capacity", {"workers": 4, "capacity": 4 * 64 / 0.074, "rate": 9000})],
        ),
        (
            {"gateway_rate": 300.0, "proof": replace(PROOF, workers=1, rate=200.0)},
            [("gateway-limit", {"rate": 300})],
        ),
        ({"gateway_rate": 300.0}, []),
    ],
)
def test_warnings_say_why(changed: dict[str, Any], expected: Findings) -> None:
    assert_advice(replace(TUNED, **changed).warnings, expected)


BAD = replace(TUNED, proposal=replace(PROPOSAL, predicted=replace(FIGURES, in_goal=0.9)), proof=None)
RESULTS = {
    "everything": TUNED,
    "fewer cores than workers": replace(TUNED, proof=replace(PROOF, workers=1, rate=200.0)),
    "a long recording": replace(TUNED, proof=replace(PROOF, seconds=60.02, recorded_s=300.0)),
    "a goal that cannot be kept": BAD,
    "lengths": replace(TUNED, lengths=PADS),
    "unknown lengths": replace(TUNED, no_lengths="8 requests of 10 bytes failed: status 500"),
}


def test_what_is_printed() -> None:
    """``tune.txt`` has it for each of the results."""
    texts = [f"=== {name}\n{printed(*text(tuned))}" for name, tuned in RESULTS.items()]
    check_texts(Path(__file__).with_name("tune.txt"), "\n".join(texts))


def test_json_has_everything_and_is_json() -> None:
    assert json.loads(as_json(BAD))["command"] is None
    assert json.loads(as_json(RESULTS["lengths"]))["lengths"]["pads"] is True
    figures = json.loads(as_json(replace(TUNED, gateway_rate=math.inf, rates=[PROPOSAL])))

    assert figures["command"].startswith("uncork serve m:S --workers 2 ")
    assert figures["advice"]["predicted"]["in_goal"] >= WANTED
    assert figures["line"]["steps"] == [8]
    assert figures["rates"][0]["rate"] == 400
    assert (figures["gateway_rate"], figures["warnings"], figures["met"]) == (None, [], True)


def test_an_api_that_counts_cost_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The message has what batch times depend on, where bodies differ."""
    weighed = {"name": "predict", "route": "/predict", "goal_ms": 50, "counts": "cost", "streams": False}
    refused = "this API counts cost, so its batch times do not follow from rows"
    module = "uncork_loadtests.tuning.tune"
    with serving_pages({"/status": status(weighed)}) as server:
        monkeypatch.setattr(f"{module}.our_service", lambda *_, **__: nullcontext(server))
        with pytest.raises(BenchError, match=f"^{refused}.*compare$"):
            tune(REQUEST, tell=quiet)
        monkeypatch.setattr(f"{module}.measure_lengths", lambda *_, **__: PADS)
        with pytest.raises(BenchError, match=f"^{refused}.*\\n  a batch of 8 .* so the model pads") as found:
            tune(REQUEST, tell=quiet)
    assert "set cost" not in str(found.value)


def test_the_batches_that_a_worker_runs_at_once_are_known_from_the_service(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    waits = {"name": "predict", "route": "/predict", "goal_ms": 50, "workers": 4, "streams": False}
    module = "uncork_loadtests.tuning.tune"
    with serving_pages({"/status": status(waits)}) as server:
        monkeypatch.setattr(f"{module}.our_service", lambda *_, **__: nullcontext(server))
        monkeypatch.setattr(f"{module}.measure_lengths", lambda *_, **__: PADS)
        monkeypatch.setattr(f"{module}.batch_times.measure", lambda *_, **__: TUNED.measured)
        monkeypatch.setattr(f"{module}._prove", lambda *_, **__: None)
        assert tune(REQUEST, tell=quiet).model.concurrency == 4
