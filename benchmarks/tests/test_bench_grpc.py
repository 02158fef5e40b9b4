"""All forms of a call are answered; failed calls and a busy generator are noted; the marks are judged."""

from __future__ import annotations

import shutil
import struct
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from benchmarks.harness.grpc_wire import prefixed
from benchmarks.harness.h2load import parse_h2load, require_h2load
from benchmarks.harness.h2load_rounds import run_counted
from benchmarks.harness.rounds import Round
from benchmarks.scale import bench_grpc
from benchmarks.scale.bench_grpc import MANY, ONE, Cell, Gateway, gateways
from benchmarks.scale.call_forms import BINARY, GRPC, JSON, call_forms, check_answer, random_values
from uncork_loadtests.servers import BenchError

OUTPUT = """
finished in 502.62ms, 2866.00 req/s, 518.17KB/s
requests: 1433 total, 1437 started, 1437 done, 1430 succeeded, 7 failed, 0 errored, 0 timeout
status codes: 1430 2xx, 0 3xx, 0 4xx, 3 5xx
"""
SMALL = Cell(size="50 floats", model="no delay", callers=64)
needs_h2load = pytest.mark.skipif(shutil.which("h2load") is None, reason="needs h2load")


@pytest.fixture(scope="module")
def gateway() -> Iterator[Gateway]:
    """The gateway without delay."""
    with gateways() as running:
        yield running[SMALL.model]


@pytest.mark.slow
def test_all_forms_have_the_same_answer(gateway: Gateway) -> None:
    values = random_values(50)
    forms = call_forms(values)
    for name, form in forms.items():
        check_answer(name, form, server=gateway.server, grpc_port=gateway.grpc_port, values=values)
        with pytest.raises(BenchError, match="does not have the values"):
            check_answer(name, form, server=gateway.server, grpc_port=gateway.grpc_port, values=values + 1)


@pytest.mark.slow
@needs_h2load
def test_loads_are_measured_and_failed_calls_are_counted(gateway: Gateway, tmp_path: Path) -> None:
    forms = call_forms(random_values(50))
    loads = bench_grpc._loads(forms, gateway, 4, tmp_path)
    assert {name: (load.connections, load.calls, load.http1) for name, load in loads.items()} == {
        JSON: (4, 1, True),
        BINARY: (4, 1, True),
        ONE: (1, 4, False),
        MANY: (4, 1, False),
    }
    for load in loads.values():
        found, count = run_counted(gateway.server, load, 0.3)
        assert (found.fault, count > 0, found.requests_per_second > 0) == ("", True, True)
    message = forms[GRPC].body.replace(b"FP32", b"BYTE")
    loads[ONE].body.write_bytes(prefixed(message))
    found, count = run_counted(gateway.server, loads[ONE], 0.3)
    assert found.fault.endswith("calls failed")
    assert int(found.fault.split()[0]) >= count


def test_values_are_those_that_json_has() -> None:
    values = random_values(1000)
    forms = call_forms(values)
    sent = struct.unpack(">BI", forms[GRPC].sent[:5])

    assert len(np.unique(values)) > 900
    assert np.array_equal(forms[JSON].values(forms[JSON].body), values)
    assert np.array_equal(forms[BINARY].values(forms[BINARY].body), values)
    assert len(forms[JSON].body) < 10 * len(values)
    assert sent == (0, len(forms[GRPC].body))


def test_the_output_of_h2load_is_read() -> None:
    found = parse_h2load(OUTPUT, cpu_s=0.25)

    assert found.calls_per_second == pytest.approx(1430 / 0.50262)
    assert (found.answers, found.failed, found.cpu_s) == (1433, 3, 0.25)
    assert found.seconds == pytest.approx(0.50262)
    with pytest.raises(BenchError, match="cannot read what h2load printed"):
        parse_h2load("h2load: connection refused", cpu_s=0.0)


def test_a_missing_h2load_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(BenchError, match=r"h2load is not on PATH.*nghttp2-client"):
        require_h2load()


def rounds(rate: float, cpu: float, *, fault: str = "", void: str = "") -> list[Round]:
    """Five equal rounds."""
    one = Round(
        requests_per_second=rate,
        p50=None,
        p99=None,
        front_cpu=cpu,
        rows_per_batch=8.0,
        fault=fault,
        void=void,
    )
    return [one] * 5


def test_a_row_is_divided_by_its_base() -> None:
    cells = bench_grpc._row(ONE, rounds(2000, 0.1), rounds(1000, 0.2), 64)

    assert cells == [
        ONE,
        "2,000",
        "2.000 (2.000 .. 2.000)",
        "32.00",
        "100",
        "0.500 (0.500 .. 0.500)",
        "8.0",
    ]
    assert len(bench_grpc._columns(JSON)) == len(cells)


@pytest.mark.parametrize(
    ("size", "callers", "states"),
    [("50 floats", 64, ["met", "missed"]), ("50 floats", 16, []), ("1 MB", 16, ["missed", "missed"])],
)
def test_marks_are_judged(size: str, callers: int, states: list[str]) -> None:
    base = JSON if size == "50 floats" else BINARY
    found = {base: rounds(1000, 0.1), ONE: rounds(1000, 0.12), MANY: rounds(1000, 0.14)}
    cell = Cell(size=size, model="no delay", callers=callers)

    notes = bench_grpc._verdicts(cell, found, *bench_grpc._MARKS[size])

    assert [note.rpartition(": ")[2] for note in notes] == states
    assert all(base in note for note in notes)


def test_faults_are_notes() -> None:
    found = {JSON: rounds(1000, 0.1), ONE: rounds(1000, 0.1, fault="3 calls failed", void="it was busy")[:1]}

    assert bench_grpc._faults(found) == [f"{ONE}, round 1: 3 calls failed", f"{ONE}, round 1: it was busy"]
