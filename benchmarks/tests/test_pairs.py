"""The bench, except for what it is for: nothing is measured here."""

import io
import sys
from os import getpid
from pathlib import Path

import pytest
from rich.console import Console

from benchmarks.harness.generators import Trial, parse_wrk
from benchmarks.pairs.bench import show
from benchmarks.pairs.pairs import Comparison, spread
from uncork_loadtests.servers import BenchError, Server, parse_stat, serve

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
    """Units are seconds, processor time is per 1000 answers."""
    seen = parse_wrk(WRK, cpu=2.0202, answers_before=90)

    assert seen.requests_per_second == pytest.approx(25252.5)
    assert seen.p50 == pytest.approx(950e-6)
    assert seen.p99 == 1.25
    assert (seen.refused, seen.fault, seen.answers) == (0, "", 101100)
    assert seen.generator_cpu == pytest.approx(0.02)


def test_what_went_wrong_with_wrk_is_told() -> None:
    """Refused requests are no throughput; lost connections are a fault."""
    seen = parse_wrk(WRK + WRK_TROUBLE, cpu=0.0)

    assert seen.requests_per_second == pytest.approx(25000)
    assert (seen.refused, seen.fault) == (1010, "socket errors: connect 0, read 3, write 0")


def test_slow_answers_to_wrk_are_no_fault() -> None:
    """Its timeouts are answers that took over two seconds."""
    assert parse_wrk(WRK + WRK_TROUBLE.replace("read 3", "read 0"), cpu=0.0).fault == ""


def test_nonsense_of_wrk_is_an_error() -> None:
    """And what it printed is shown."""
    with pytest.raises(BenchError, match="no such option"):
        parse_wrk("no such option", cpu=0.0)


def test_ratios_are_taken_round_by_round() -> None:
    """The spread is that of the rounds; a round without a value makes it unknown."""
    found = spread([2.0, 6.0, 4.0], by=[1.0, 2.0, 2.0])

    assert found is not None
    assert (found.median, found.low, found.high) == (2.0, 2.0, 3.0)
    assert spread([1.0, None], by=[1.0, 1.0]) is None
    assert spread([1.0], by=[0.0]) is None


def test_a_process_name_may_look_like_anything() -> None:
    """Parent and ticks are found behind a name with blanks and parentheses."""
    line = "42 (a) S (b c) S 7 1 1 0 -1 4194304 100 0 0 0 250 50 9 9 20 0 1 0 1 1 1"

    assert parse_stat(line) == (7, 300)


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")
def test_processor_time_of_a_process_is_read() -> None:
    """This process has used some; one that does not exist has none to tell."""
    here = Server(name="here", command=("x",), port=1, pid=getpid())
    gone = Server(name="gone", command=("x",), port=1, pid=2**22 + 1)

    cpu = here.cpu()

    assert cpu is not None
    assert cpu.server > 0
    assert gone.cpu() is None


def test_a_server_that_does_not_start_says_why() -> None:
    """What it wrote last is in the message."""
    command = [sys.executable, "-c", "raise SystemExit('no such model')"]

    with (
        pytest.raises(BenchError, match=r"broken ended with 1 .*\n.*no such model"),
        serve("broken", command=command),
    ):
        pass


def test_a_comparison_is_shown_with_ratio_and_spread() -> None:
    """Medians in the table, the ratio below it, the command in full."""
    trials = {
        name: [Trial(generator="wrk", seen=parse_wrk(WRK, cpu=0.0), server_cpu=0.01, workers_cpu=None)]
        for name in ("uncork", "bare")
    }
    comparison = Comparison(
        title="echo",
        notes=["Generator: wrk."],
        connections=256,
        commands={"uncork": "uncork serve " + "x" * 200},
        trials=trials,
        metric="requests_per_second",
        ratio=spread([3.0, 2.0], by=[2.0, 2.0]),
    )
    output = io.StringIO()

    show(comparison, console=Console(file=output, width=80))

    text = output.getvalue()
    assert "25,252" in text
    assert "requests per second, uncork / bare: 1.25 (1.00 .. 1.50)" in text
    assert "uncork serve " + "x" * 200 in text
