"""The parts of the harness that measure nothing."""

from pathlib import Path

import pytest

from benchmarks.harness.trends import Points, append, sheet, thinned
from benchmarks.harness.wrk import parse_wrk

WRK = """Running 4s test @ http://127.0.0.1:8765/echo
  1 threads and 256 connections
  Thread Stats   Avg      Stdev     Max   +/- Stdev
    Latency    10.34ms    3.17ms  54.26ms   86.59%
  Latency Distribution
     50%  950.00us
     75%   11.55ms
     99%    1.25s
  101010 requests in 4.00s, 13.68MB read
"""


def test_what_wrk_prints_is_read() -> None:
    seen, answers = parse_wrk(WRK)

    assert seen.requests_per_second == pytest.approx(25252.5)
    assert seen.p50 == pytest.approx(950e-6)
    assert seen.p99 == 1.25
    assert (seen.refused, seen.fault, answers) == (0, "", 101010)


def growing(percent_per_hour: float) -> Points:
    """An hour that begins at half its level, and then grows around 100."""
    return [
        (at_s, 50.0 if at_s < 700 else 100 + percent_per_hour * (at_s / 3600 - 0.6))
        for at_s in range(0, 3601, 100)
    ]


def test_slopes_leave_out_the_beginning_and_have_an_interval_over_the_runs(tmp_path: Path) -> None:
    file = tmp_path / "runs.jsonl"
    append({"memory, MB": growing(1.0)}, file)
    table = sheet(append({"memory, MB": growing(3.0)}, file))

    assert table.title == "Trends over 2 runs, 2.0 hours in all"
    assert [list(row) for row in table.rows] == [
        ["memory, MB", "99.9", "+2.0", "-10.7 .. +14.7", "+1.0, +3.0"]
    ]


def test_runs_too_short_for_a_slope_say_so(tmp_path: Path) -> None:
    (row,) = sheet(append({"memory, MB": [(0.0, 5.0)]}, tmp_path / "runs.jsonl")).rows

    assert list(row) == ["memory, MB", "5.0", "+nan", "-", "+nan"]


def test_ten_seconds_become_their_median() -> None:
    assert thinned([(0.5, 1.0), (3.0, 9.0), (9.9, 2.0), (20.0, 4.0)]) == [(0.0, 2.0), (20.0, 4.0)]
