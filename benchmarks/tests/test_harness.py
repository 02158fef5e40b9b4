"""The parts of the harness that measure nothing."""

import pytest

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
