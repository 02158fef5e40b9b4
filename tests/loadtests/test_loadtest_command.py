"""``uncork loadtest``: invalid options, tables and exit codes."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.expected import check_texts, printed
from tests.loadtests.generator.test_samples import NO_ANSWER, samples
from uncork.cli.loadtest import command
from uncork.cli.loadtest.options import LoadtestOptions
from uncork.cli.loadtest.tables import as_json, tables
from uncork.cli.loadtest.traffic import seconds_of
from uncork_loadtests.generator.fleet import Outcome
from uncork_loadtests.generator.samples import LOST, PENDING, UNANSWERED
from uncork_loadtests.targets import Estimate, Padding
from uncork_loadtests.traffic.plan import Payload, Plan
from uncork_loadtests.traffic.random_rows import Numbers, RandomRows

URL = "http://127.0.0.1:1/x"
PLAN = Plan(
    url=URL, payload=Payload(bodies=(b"\xff",)), rate=10.0, seconds=2.0, warmup_s=0.5, goal_s=0.1, seed=3
)


def test_a_class_is_a_header() -> None:
    options = LoadtestOptions(target=URL, clients=1, shape="4", request_class="bulk", header=["a: b"])
    assert options.plan().headers == (("a", "b"), ("X-Request-Class", "bulk"))


def test_a_recording_lasts_as_long_as_it_does(tmp_path: Path) -> None:
    trace = tmp_path / "trace.csv"
    trace.write_text("5.0\n6.0\n8.5\n")
    arrivals = f"replay:{trace}"
    options = LoadtestOptions(target=URL, arrivals=arrivals)
    seconds = seconds_of(options, None, default=10.0)

    assert 3.5 < seconds < 6
    assert seconds_of(options, 2.0, default=10.0) == 2.0
    assert seconds_of(replace(options, rate=1.0), None, default=10.0) == 10.0
    assert seconds_of(replace(options, arrivals="poisson"), None, default=10.0) == 10.0


def outcome(*changes: dict[str, Any]) -> Outcome:
    good = {"done_s": 1.02, "first_s": 1.02, "queued_ms": 5.0, "batch_ms": 12.0}
    return Outcome(
        plan=PLAN,
        samples=samples(*(good | changed for changed in [*[{}] * 20, *changes])),
        measured_s=2.0,
        cpu_s=(0.5, 0.25),
        connections=7,
        first_wrong="",
        interrupted=False,
    )


@pytest.mark.parametrize(
    ("changes", "failure"),
    [
        ([], ""),
        ([{"status": 400}] * 20, ""),
        ([{"status": 503}] * 900, ""),
        ([{**NO_ANSWER, "status": PENDING}] * 900, ""),
        (
            [{"status": 400}] * 21,
            "most requests failed: 21 of 41 requests ended with 400; first: expected a row",
        ),
        ([{"status": LOST}] * 21, "most requests failed: 21 of 41 requests ended with connection lost"),
        (
            [{"status": 503}] * 22 + [{"status": 500}] * 43,
            "most requests failed: 43 of 85 requests ended with 500",
        ),
    ],
)
def test_a_run_fails_if_most_requests_do(changes: list[dict[str, Any]], failure: str) -> None:
    """Or if none was successful."""
    found = replace(outcome(*changes), first_errors={400: "expected a row", 500: "", 503: "busy"})
    assert found.failure == failure

    nothing = replace(found, samples=found.samples[found.samples["status"] != 200])
    assert nothing.failure.startswith("no response was successful")


FEW_ANSWERS = outcome(
    {**NO_ANSWER, "status": 503, "done_s": 1.0},
    {**NO_ANSWER, "status": LOST},
    {**NO_ANSWER, "status": UNANSWERED},
    {"done_s": 1.5},
    {"scheduled_s": -0.1, "wrong": True},
)
ERRORS = replace(
    outcome({"status": 400}, {"status": 503}, {"status": 404}),
    first_errors={400: "expected a row", 503: "busy", 404: ""},
)
ROWS = RandomRows(shape=(4,), numbers=Numbers(low=0, high=9, integers=True))
BY_COST = Estimate(intercept_ms=10.0, slope_ms=0.25, counts="cost")
RESULTS: dict[str, tuple[Outcome, Estimate | None]] = {
    "few answers": (FEW_ANSWERS, Estimate(intercept_ms=10.0, slope_ms=0.25)),
    "long bodies": (
        outcome({"body_bytes": 90, "done_s": 1.2}, {"body_bytes": 90}, {"body_bytes": 90, "status": 503}),
        None,
    ),
    "first errors": (ERRORS, BY_COST),
    "interrupted": (
        replace(outcome(*[{**NO_ANSWER, "status": PENDING}] * 4), measured_s=1.05, interrupted=True),
        None,
    ),
    "streams": (outcome(*[{"first_s": 1.01, "done_s": 1.05, "chunks": 5}] * 10), None),
    "random rows, padded": (
        replace(outcome(), plan=replace(PLAN, payload=Payload(bodies=(b"[1,2,3,4]",), random=ROWS))),
        replace(BY_COST, padding=Padding(measure="longest_bytes", share=0.125)),
    ),
    "a generator that fell behind": (
        outcome({"fired_s": 1.5, "done_s": 1.52}),
        replace(BY_COST, padding=Padding(measure="bytes", share=0.0)),
    ),
}


def test_what_is_printed() -> None:
    """``loadtest.txt`` has it for each of the results."""
    texts = [
        f"=== {name}\n{printed(*tables(found, found.summary(), estimate=estimate))}"
        for name, (found, estimate) in RESULTS.items()
    ]
    check_texts(Path(__file__).with_name("loadtest.txt"), "\n".join(texts))


def test_json_has_the_figures() -> None:
    def figures(name: str) -> Any:
        found, estimate = RESULTS[name]
        return json.loads(as_json(found, found.summary(), estimate=estimate))

    few, void = figures("few answers"), figures("a generator that fell behind")
    assert few["plan"]["rate"] == 10
    assert few["summary"]["latency"]["percentiles_ms"]["50"] == pytest.approx(20)
    assert few["summary"]["latency"]["percentiles_ms"]["99"] is None
    assert (few["void"], few["generator_cpu_s"]) == (None, [0.5, 0.25])
    assert void["void"].startswith("the load generator fell behind")
    assert void["estimate"]["padding"]["measure"] == "bytes"
    assert figures("first errors")["first_errors"] == {"400": "expected a row", "503": "busy", "404": ""}
    assert figures("long bodies")["summary"]["long_bodies"]["in_goal"] == pytest.approx(1 / 3)
    assert figures("streams")["summary"]["chunks_by_answer"] == 5
    plan = figures("random rows, padded")["plan"]
    assert (plan["random"]["numbers"], plan["bodies"]) == ({"low": 0, "high": 9, "integers": True}, 1)


def test_a_report_has_no_codes_of_the_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """On which the table has its headings in bold."""
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    report = tmp_path / "report.html"
    command._show(outcome(), None, LoadtestOptions(target=URL, report=report))

    shown = re.search("<pre>(.*?)</pre>", report.read_text(encoding="utf-8"), re.DOTALL)
    assert shown is not None
    assert "milliseconds" in shown[1]
    assert "\x1b" not in shown[1]
    assert "milliseconds" in capsys.readouterr().out
