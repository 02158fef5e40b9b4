"""The parts of scripts/bench that measure nothing, and servers."""

import sys
from os import getpid

import pytest

from benchmarks.bench import Pair, sheet
from benchmarks.harness.marks import ratio_interval, ratios
from benchmarks.harness.rounds import Round, interleave
from benchmarks.harness.wrk import parse_wrk
from uncork_loadtests.servers import BenchError, Server, serve

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


def test_what_wrk_prints_is_read() -> None:
    seen = parse_wrk(WRK)

    assert seen.requests_per_second == pytest.approx(25252.5)
    assert seen.p50 == pytest.approx(950e-6)
    assert seen.p99 == 1.25
    assert (seen.refused, seen.fault, seen.answers) == (0, "", 101010)


def test_what_went_wrong_with_wrk_is_told() -> None:
    seen = parse_wrk(WRK + WRK_TROUBLE)

    assert seen.requests_per_second == pytest.approx(25000)
    assert (seen.refused, seen.fault) == (1010, "socket errors: connect 0, read 3, write 0")


def test_slow_answers_to_wrk_are_no_fault() -> None:
    assert parse_wrk(WRK + WRK_TROUBLE.replace("read 3", "read 0")).fault == ""


def test_nonsense_of_wrk_is_an_error() -> None:
    with pytest.raises(BenchError, match="no such option"):
        parse_wrk("no such option")


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


def test_processor_time_of_a_process_is_read() -> None:
    here = Server(name="here", command=("x",), port=1, pid=getpid())
    gone = Server(name="gone", command=("x",), port=1, pid=2**22 + 1)

    cpu = here.cpu()

    assert cpu is not None
    assert cpu.server > 0
    assert gone.cpu() is None


def test_a_server_that_does_not_start_says_why() -> None:
    command = [sys.executable, "-c", "raise SystemExit('no such model')"]

    with (
        pytest.raises(BenchError, match=r"broken exited with 1 .*\n.*no such model"),
        serve("broken", command=command),
    ):
        pass


def test_a_pair_is_a_table_with_ratios() -> None:
    fast = [Round(requests_per_second=rate, p50=None, p99=None) for rate in (2000.0, 3000.0, 4000.0)]
    slow = [Round(requests_per_second=1000.0, p50=None, p99=None)] * 3
    pair = Pair(
        title="echo",
        notes=["Generator: wrk."],
        commands={},
        rounds={"uncork": fast, "bare": slow},
        metric="requests_per_second",
        ratio=ratio_interval([2.0, 3.0, 4.0], by=[1.0, 1.0, 1.0]),
    )

    table = sheet(pair)

    assert table.rows[0] == ["requests/s", "3,000", "1,000", "3.000 (2.000 .. 4.000)"]
    assert table.rows[1] == ["p50 latency, s", "-", "-", "-"]
    assert table.emphasised == "requests/s"
    assert table.notes == [
        "requests per second, uncork / bare: 3.000 (2.000 .. 4.000)",
        "Generator: wrk.",
    ]
