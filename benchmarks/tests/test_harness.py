"""The parts of the harness that measure nothing."""

import pytest

from benchmarks.harness.h2load import parse_h2load
from benchmarks.harness.wrk import parse_wrk
from uncork_loadtests.servers import BenchError

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


H2LOAD = """
finished in 502.62ms, 2866.00 req/s, 518.17KB/s
requests: 1433 total, 1437 started, 1437 done, 1430 succeeded, 7 failed, 0 errored, 0 timeout
status codes: 1430 2xx, 0 3xx, 0 4xx, 3 5xx
"""


def test_the_output_of_h2load_is_read() -> None:
    found = parse_h2load(H2LOAD, cpu_s=0.25)

    assert found.calls_per_second == pytest.approx(1430 / 0.50262)
    assert (found.answers, found.failed) == (1433, 3)
    with pytest.raises(BenchError, match="cannot read what h2load printed"):
        parse_h2load("h2load: connection refused", cpu_s=0.0)


def test_what_wrk_prints_is_read() -> None:
    seen, answers = parse_wrk(WRK, 2.0)

    assert seen.requests_per_second == pytest.approx(25252.5)
    assert seen.p50 == pytest.approx(950e-6)
    assert seen.p99 == 1.25
    assert (seen.refused, seen.fault, answers) == (0, "", 101010)
    assert seen.generator_cpu == pytest.approx(2000 / 101010)
