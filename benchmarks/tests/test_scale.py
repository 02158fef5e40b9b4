"""The parts of scripts/bench scale that measure nothing."""

import resource

import pytest

from benchmarks.harness.marks import at_least
from benchmarks.harness.metrics import read_batches
from benchmarks.harness.rounds import Round
from benchmarks.scale.answer_forms import vectors_service
from benchmarks.scale.bench import sheet
from benchmarks.scale.scaling import Finding, Step, allow_open_files
from uncork_loadtests.intervals import Interval
from uncork_loadtests.servers import BenchError

METRICS = """\
# HELP uncork_batch_rows Rows in a batch.
# TYPE uncork_batch_rows histogram
uncork_batch_rows_bucket{api="predict",le="+Inf"} 4
uncork_batch_rows_sum{api="predict"} 30
uncork_batch_rows_count{api="predict"} 4
"""


def trial(rate: float, *, rows_per_batch: float | None = None) -> Round:
    """A round with this rate."""
    return Round(
        requests_per_second=rate,
        p50=0.002,
        p99=None,
        front_cpu=0.05,
        all_cpu=None,
        generator_cpu=0.01,
        rows_per_batch=rows_per_batch,
    )


def test_batches_are_read_from_the_metrics() -> None:
    assert read_batches(METRICS) == (4, 30)
    assert read_batches("17") is None
    assert read_batches("") is None


def test_open_files_beyond_what_is_allowed_are_told() -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)

    allow_open_files(1)
    with pytest.raises(BenchError, match=r"are needed, .* are allowed; raise ulimit -Hn"):
        allow_open_files(2**40)

    assert resource.getrlimit(resource.RLIMIT_NOFILE) == before


def test_a_finding_is_a_table_with_its_mark() -> None:
    steps = [
        Step(
            name="uncork",
            rounds=[trial(90, rows_per_batch=4.0), trial(110)],
            ratio=Interval(median=0.5, low=0.45, high=0.55),
            state="within the noise",
        ),
        Step(name="bare", rounds=[trial(200), trial(200)]),
    ]
    found = sheet(
        Finding(
            kind="bodies",
            title="T",
            figure="MB/s",
            base="bare",
            bound=at_least(0.5),
            steps=steps,
            body_bytes=100_000,
        )
    )

    assert dict(zip(found.columns, found.rows[0], strict=True)) == {
        "server": "uncork",
        "MB/s": "10",
        "req/s": "100",
        "p50 ms": "2.00",
        "p99 ms": "-",
        "front cpu": "0.050",
        "below cpu": "-",
        "rows/batch": "4.0",
        "faults": "0",
        "MB/s / bare": "0.500 (0.450 .. 0.550)",
        "mark: at least 0.5": "within the noise",
    }
    assert found.rows[1][-2:] == ["-", ""]


def test_the_array_of_an_answer_is_of_the_size_that_is_asked_for() -> None:
    assert "VECTOR_VALUES=250000" in vectors_service(1_000_003)
