"""``uncork loadtest``: invalid options, tables and exit codes."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from uncork.cli.loadtest.options import LoadtestOptions
from uncork.cli.loadtest.tables import as_json, tables
from uncork.cli.loadtest.traffic import seconds_of
from uncork_loadtests.generator.fleet import Outcome
from uncork_loadtests.generator.samples import LOST, UNANSWERED, Recorder
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
    good = {
        "scheduled_s": 1.0,
        "fired_s": 1.0,
        "sent_s": 1.0,
        "done_s": 1.02,
        "status": 200,
        "batch_rows": 4,
        "queued_ms": 5.0,
        "batch_ms": 12.0,
        "wrong": False,
        "first_s": 1.02,
        "chunks": 0,
        "body_bytes": 40,
    }
    recorder = Recorder()
    for changed in [*[{}] * 20, *changes]:
        recorder.add(*(good | changed).values())
    return Outcome(
        plan=PLAN,
        samples=recorder.samples(),
        measured_s=2.0,
        cpu_s=(0.5, 0.25),
        connections=7,
        first_wrong="",
        interrupted=False,
    )


def printed(found: Outcome, *, estimate: Estimate | None = None) -> str:
    console = Console(width=200, markup=False)
    with console.capture() as captured:
        for part in tables(found, found.summary(), estimate=estimate):
            console.print(part)
    return captured.get()


def shown(found: Outcome, *, estimate: Estimate | None = None) -> dict[str, list[str]]:
    lines = printed(found, estimate=estimate).splitlines()
    return {line.split()[0]: line.split()[1:] for line in lines if line.strip()}


def test_the_table_has_what_was_found() -> None:
    nothing = {
        "done_s": math.nan,
        "first_s": math.nan,
        "batch_rows": 0,
        "queued_ms": math.nan,
        "batch_ms": math.nan,
    }
    found = outcome(
        {"status": 503, **nothing, "done_s": 1.0},
        {"status": LOST, **nothing},
        {"status": UNANSWERED, **nothing},
        {"done_s": 1.5},
        {"scheduled_s": -0.1, "wrong": True},
    )
    lines = shown(found, estimate=Estimate(intercept_ms=10.0, slope_ms=0.25))
    figures = json.loads(as_json(found, found.summary(), estimate=None))

    assert lines["offered"] == ["12.0/s", "24", "requests"]
    assert lines["answered"] == ["11.0/s", "21", "successful", "responses", "(2xx)"]
    assert lines["in"][:2] == ["goal", "83.33"]
    assert lines["503"] == ["(refused)", "1", "4.17", "%"]
    assert lines["connection"] == ["lost", "1", "4.17", "%"]
    assert lines["no"] == ["response", "1", "4.17", "%"]
    assert lines["rows/batch"][:1] == ["4.0"]
    assert lines["queued"] == ["21", "5.00", "5.00", "-", "-", "-", "5.00"]
    assert lines["batch"] == ["21", "12.00", "12.00", "-", "-", "-", "12.00"]
    assert lines["wrong"][:2] == ["responses", "1"]
    assert lines["the"][1:5] == ["estimates", "10", "+", "0.25n"]
    assert figures["plan"]["rate"] == 10
    assert figures["summary"]["latency"]["percentiles_ms"]["50"] == pytest.approx(20)
    assert figures["summary"]["latency"]["percentiles_ms"]["99"] is None
    assert (figures["void"], figures["estimate"], figures["generator_cpu_s"]) == (None, None, [0.5, 0.25])
    void = outcome({"fired_s": 1.5, "done_s": 1.52})
    assert "the load generator fell behind" in void.void
    assert json.loads(as_json(void, void.summary(), estimate=None))["void"] == void.void


def test_the_table_has_long_bodies_where_bodies_differ() -> None:
    found = outcome({"body_bytes": 90, "done_s": 1.2}, {"body_bytes": 90}, {"body_bytes": 90, "status": 503})
    text = printed(found)

    assert "within 100 ms; 33.33 % of those with long bodies" in text
    assert re.search(r"^  long bodies +2 +110\b", text, re.MULTILINE)
    assert "long bodies: the longest tenth, from 90 bytes; all bodies have 40 to 90 bytes" in text
    assert "long" not in shown(outcome())
    assert json.loads(as_json(found, found.summary(), estimate=None))["summary"]["long_bodies"]["in_goal"]


@pytest.mark.parametrize(
    ("padding", "expected"),
    [
        (
            Padding(measure="longest", share=0.125),
            ["batches are padded to their longest row; 12% of the work"],
        ),
        (Padding(measure="longest_bytes", share=0.5), ["longest row; 50% of the work is padding"]),
        (
            Padding(measure="bytes", share=0.0),
            ["batch times follow the sum of the rows' lengths; batches are not"],
        ),
        (None, []),
    ],
)
def test_the_estimate_has_its_unit_and_the_padding(padding: Padding | None, expected: list[str]) -> None:
    known = Estimate(intercept_ms=10.0, slope_ms=0.25, counts="cost", padding=padding)
    lines = list(tables(outcome(), outcome().summary(), estimate=known))
    start = lines.index("the gateway estimates 10 + 0.25n ms for a batch with a total cost of n")

    assert len(lines) - start - 1 == len(expected)
    assert all(part in str(line) for part, line in zip(expected, lines[start + 1 :], strict=True))


def test_the_table_has_what_the_first_error_said() -> None:
    found = replace(
        outcome({"status": 400}, {"status": 503}, {"status": 404}),
        first_errors={400: "expected a row", 503: "busy", 404: ""},
    )
    lines = shown(found)

    assert lines["400"] == ["1", "4.35", "%;", "first:", "expected", "a", "row"]
    assert lines["503"] == ["(refused)", "1", "4.35", "%;", "first:", "busy"]
    assert lines["404"] == ["1", "4.35", "%"]
    figures = json.loads(as_json(found, found.summary(), estimate=None))
    assert figures["first_errors"] == {"400": "expected a row", "503": "busy", "404": ""}


@pytest.mark.parametrize(
    ("changes", "failure"),
    [
        ([], ""),
        ([{"status": 400}] * 20, ""),
        ([{"status": 503}] * 900, ""),
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


def test_random_rows_are_described() -> None:
    rows = RandomRows(shape=(4,), numbers=Numbers(low=0, high=9, integers=True))
    payload = Payload(bodies=(b"[1,2,3,4]",), random=rows)
    found = replace(outcome(), plan=replace(PLAN, payload=payload))

    described = "request: a random row of shape 4, integers from 0 to 9"
    assert " ".join(shown(found)["each"]) == described
    figures = json.loads(as_json(found, found.summary(), estimate=None))["plan"]
    assert figures["random"]["numbers"] == {"low": 0, "high": 9, "integers": True}
    assert figures["bodies"] == 1


def test_streams_have_lines_of_their_own() -> None:
    streamed = {"first_s": 1.01, "done_s": 1.05, "chunks": 5}
    found = outcome(*[streamed] * 10)
    lines = shown(found)

    assert lines["chunks"] == ["25.0/s", "5.0", "per", "streamed", "response"]
    assert lines["first"] == ["chunk", "10", "10.00", "10.00", "-", "-", "-", "10.00"]
    assert lines["chunk"] == ["to", "chunk", "10", "10.00", "10.00", "-", "-", "-", "10.00"]
    figures = json.loads(as_json(found, found.summary(), estimate=None))["summary"]
    assert figures["first_chunk"]["percentiles_ms"]["50"] == pytest.approx(10)
    assert (figures["chunks_per_s"], figures["chunks_by_answer"]) == (25, 5)
    assert not {"chunks", "first", "chunk"} & shown(outcome()).keys()
