"""``uncork check`` with real services: what it finds, and what it ends with."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.server import SERVICES, run_uncork

pytestmark = pytest.mark.slow

CHECKED = SERVICES / "checked.py"


def findings(document: dict[str, Any]) -> set[tuple[str, str, str]]:
    """Severity, kind and api of all that was found."""
    return {(one["severity"], one["code"], one["api"]) for one in document["findings"]}


def test_a_service_without_fault() -> None:
    """Exit code 0; the figures are those of the model, that of files from the worker's own warm-up."""
    done = run_uncork("check", f"{CHECKED}:Fine", "--seconds", "2", "--warmup-seconds", "0", "--json", "-")
    document = json.loads(done.stdout)

    assert findings(document) == {("note", "not-compared", "lengths")}
    assert done.returncode == 0
    predict, lengths = document["apis"]
    assert [size["rows"] for size in predict["times"]["sizes"]] == [1, 2, 4, 8, 16]
    assert [size["rows"] for size in lengths["times"]["sizes"]] == [1, 2, 4]
    for api in (predict, lengths):
        assert all(size["median_ms"] >= 10 for size in api["times"]["sizes"])
    assert done.stderr == ""


def test_several_services(tmp_path: Path) -> None:
    """Each is measured with its own settings and environment, then all are judged together."""
    file = tmp_path / "uncork.toml"
    file.write_text(
        f"""
        [services.one]
        target = "{CHECKED}:Fine"
        workers = 900
        environment = {{ OMP_NUM_THREADS = 1 }}
        [services.two]
        target = "{CHECKED}:Fine"
        own_routes = false
        mb_max_latency = 5
        """
    )
    found = tmp_path / "found.json"
    done = run_uncork("check", "--config", str(file), "--seconds", "2", "--json", str(found))
    document = json.loads(found.read_text())

    assert done.stdout.startswith("service one\n")
    assert "\nservice two\n" in done.stdout
    assert "\nall services together: 901 workers on " in done.stdout
    one, two = document["services"]["one"], document["services"]["two"]
    assert (one["service"], one["plan"]["threads"]) == ("Fine", 1)
    assert findings(one) == {("note", "not-compared", "lengths")}
    assert ("error", "goal-below-row", "predict") in findings(two)
    assert ("warning", "workers-above-cores", "") in findings(document)
    needs = document["needs"]
    assert needs["workers"] == 901
    assert needs["worker_bytes"] == sum(s["plan"]["workers"] * s["plan"]["worker_bytes"] for s in (one, two))
    assert done.returncode == 1

    missing = run_uncork("check", f"{CHECKED}:Fine", f"two={SERVICES / 'probe.py'}:NoSetup", "--seconds", "1")
    assert missing.returncode == 1
    assert "cannot start the service two: setup: RuntimeError: no weights here" in missing.stderr


def test_a_service_with_several_faults(tmp_path: Path) -> None:
    """Each is found in the running service; exit code 1, and what to set."""
    file = tmp_path / "found.json"
    limits = (
        "--max-worker-memory", "150MiB", "--drain-timeout", "0.1", "--client-timeout-ms", "100",
        "--max-connections", "999999999",
    )  # fmt: skip
    done = run_uncork("check", f"{CHECKED}:Faulty", "--seconds", "9", *limits, "--json", str(file))
    found = findings(json.loads(file.read_text()))

    assert {
        ("error", "goal-below-row", "late"),
        ("error", "client-below-goal", "large"),
        ("warning", "cap-above-memory", "large"),
        ("warning", "drain-below-goal", "picky"),
        ("warning", "connections-above-files", ""),
        ("note", "body-above-batch-bytes", "large"),
        ("note", "not-measured", "picky"),
    } <= found
    assert done.returncode == 1
    assert "error late: the smallest batch, of 1 row, takes" in done.stdout
    assert "\n  set mb_max_latency to " in done.stdout
    assert "\x1b" not in done.stdout + done.stderr


def test_a_service_whose_handlers_fail() -> None:
    """Each is an error with what was raised and where; exit code 1."""
    done = run_uncork("check", f"{CHECKED}:Raising", "--seconds", "2", "--json", "-")
    document = json.loads(done.stdout)

    wrong = {one["api"]: one["wrong"] for one in document["findings"] if one["code"] == "handler-fails"}
    line = line_of('return [item["who knows"]')
    assert wrong["always"] == (
        f"with a row generated from the schema, the handler raises KeyError: 'who knows' (checked.py:{line})"
    )
    assert wrong["in_company"].startswith(
        "with a batch of 2 rows, but not with fewer, the handler raises Wrong"
    )
    assert f"(checked.py:{line_of('yield str(')})" in wrong["streamed"]
    assert "fine" not in wrong
    assert wrong["deadly"] == "with a row generated from the schema, the handler kills the worker process"
    assert done.returncode == 1


def test_a_service_short_of_memory() -> None:
    """What fits is a warning, and rows are compared in batches that fit."""
    done = run_uncork("check", f"{CHECKED}:Short", "--seconds", "1", "--json", "-")

    assert ("warning", "memory-limit", "predict") in findings(json.loads(done.stdout))
    assert done.returncode == 0
    assert done.stderr == ""


def test_rows_that_affect_each_other(tmp_path: Path) -> None:
    """Each fault is found in the running service; rows that cannot be judged are notes."""
    file = tmp_path / "found.json"
    done = run_uncork("check", f"{CHECKED}:Mixed", "--seconds", "20", "--json", str(file))
    document = json.loads(file.read_text())

    about_rows = {"handler-fails", "batch-leak", "batch-order", "not-deterministic", "not-compared"}
    assert {one for one in findings(document) if one[1] in about_rows} == {
        ("error", "batch-leak", "normalized"),
        ("note", "batch-leak", "unmerged"),
        ("warning", "batch-leak", "quantized"),
        ("error", "batch-order", "ordered"),
        ("note", "not-deterministic", "dropout"),
        ("note", "not-compared", "known"),
        ("error", "handler-fails", "stacked"),
        ("note", "not-compared", "files"),
        ("note", "not-compared", "deadly"),
        ("note", "not-compared", "late"),
    }
    assert ("warning", "policy-none", "unmerged") not in findings(document)
    assert done.returncode == 1
    wrong = {one["api"]: one["wrong"] for one in document["findings"] if one["code"] in about_rows}
    assert wrong["deadly"].endswith(": the handler kills the worker process")
    assert wrong["late"].endswith(": the worker died in a batch of deadly")
    assert "error normalized: results depend on the other rows of the batch: `$[" in done.stdout


def line_of(code: str) -> int:
    lines = CHECKED.read_text().splitlines()
    return next(number for number, line in enumerate(lines, 1) if code in line)


def test_warnings_fail_when_they_are_to() -> None:
    """They do not otherwise; the exit code of errors is the same."""
    impatient = ("--seconds", "0.1", "--drain-timeout", "0.1")
    done = run_uncork("check", f"{CHECKED}:Fine", *impatient, "--strict")

    assert "Fine: 2 warnings" in done.stdout
    assert done.returncode == 1
