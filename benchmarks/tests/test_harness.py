"""The parts of the harness that measure nothing."""

import pytest

from benchmarks.harness.h2load import parse_h2load
from benchmarks.harness.marks import ratio_interval, ratios
from benchmarks.harness.rounds import interleave
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
WRK_TROUBLE = """  Socket errors: connect 0, read 3, write 0, timeout 5
  Non-2xx or 3xx responses: 1010
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


def test_what_went_wrong_with_wrk_is_told() -> None:
    seen, _ = parse_wrk(WRK + WRK_TROUBLE, 2.0)

    assert seen.requests_per_second == pytest.approx(25000)
    assert (seen.refused, seen.fault) == (1010, "socket errors: connect 0, read 3, write 0")


def test_slow_answers_to_wrk_are_no_fault() -> None:
    assert parse_wrk(WRK + WRK_TROUBLE.replace("read 3", "read 0"), 2.0)[0].fault == ""


def test_nonsense_of_wrk_is_an_error() -> None:
    with pytest.raises(BenchError, match="no such option"):
        parse_wrk("no such option", 0.0)


def test_ratios_are_taken_round_by_round() -> None:
    assert ratios([2.0, 6.0, 4.0], by=[1.0, 2.0, 2.0]) == [2.0, 3.0, 2.0]
    assert ratios([1.0, None, 1.0], by=[1.0, 1.0, 0.0]) == [1.0]
    assert ratio_interval([None], by=[1.0]) is None


def test_rounds_are_interleaved() -> None:
    names = {"a": 1, "b": 2, "c": 3}
    seen: list[tuple[str, int]] = []

    def measure(name: str, number: int) -> int:
        seen.append((name, number))
        if (name, number) == ("a", 2):
            del names["a"]
        return number

    found = interleave(names, rounds=3, measure=measure, tell=lambda step: None)

    assert [name for name, number in seen if number == 1] == ["a", "b", "c"]
    assert [name for name, number in seen if number == 2] == ["b", "c", "a"]
    assert [name for name, number in seen if number == 3] == ["c", "b"]
    assert found == {"b": [1, 2, 3], "c": [1, 2, 3]}
