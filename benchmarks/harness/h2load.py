"""Measurements of gRPC servers with the load generator h2load.

It sends a single body in a closed loop and ignores answers. Of gRPC it knows nothing: a call that fails is an
answer with HTTP status 200. A gateway's metrics count those.
"""

import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from benchmarks.harness.commands import run_generator
from benchmarks.harness.metrics import read_metrics, sum_of
from benchmarks.harness.rounds import Round, measure_load
from uncork_dispatcher.wording import plural
from uncork_loadtests.servers import BenchError, Server

_PROGRAM = "h2load"
_UNITS = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_WARMUP_S = 0.5
# A generator that uses more of its processor than that may be what limits the rate.
_MOST_BUSY = 0.9


@dataclass(frozen=True, kw_only=True)
class H2Load:
    """A closed loop, one call at a time on each connection."""

    url: str
    body: Path
    headers: Mapping[str, str]
    connections: int = 1


@dataclass(frozen=True, kw_only=True)
class H2LoadResult:
    """What h2load printed, and the CPU time that it used."""

    calls_per_second: float
    answers: int
    """With any status."""
    failed: int
    """Answers other than 2xx and 3xx."""
    seconds: float
    cpu_s: float


def require_h2load() -> None:
    """Raise BenchError if the program is not installed."""
    if shutil.which(_PROGRAM) is None:
        raise BenchError(
            f"the program {_PROGRAM} is not on PATH; Debian and Ubuntu have it in the package nghttp2-client"
        )


def run_h2load(load: H2Load, *, seconds: float) -> H2LoadResult:
    """Run the loop; raise BenchError if h2load fails or does not end."""
    command = [_PROGRAM, f"-c{load.connections}", "-m1", "-t1", f"-D{round(seconds * 1000)}ms"]
    command += [f"-H{name}: {value}" for name, value in load.headers.items()]
    output, cpu_s = run_generator([*command, f"-d{load.body}", load.url], seconds=seconds)
    return parse_h2load(output, cpu_s=cpu_s)


def parse_h2load(output: str, *, cpu_s: float) -> H2LoadResult:
    """Parse the output of h2load."""
    total = re.search(r"^finished in ([\d.]+)(us|ms|s|m|h), ([\d.]+) req/s", output, re.MULTILINE)
    # "Failed" also counts the answers that h2load cuts off at its end.
    counts = re.search(r"^status codes: (\d+) 2xx, (\d+) 3xx, (\d+) 4xx, (\d+) 5xx", output, re.MULTILINE)
    succeeded = re.search(r"(\d+) succeeded, ", output)
    if total is None or counts is None or succeeded is None:
        raise BenchError(f"cannot read what {_PROGRAM} printed:\n{output}")
    failed = int(counts[3]) + int(counts[4])
    seconds = float(total[1]) * _UNITS[total[2]]
    return H2LoadResult(
        calls_per_second=int(succeeded[1]) / seconds if seconds else 0.0,
        answers=int(succeeded[1]) + failed,
        failed=failed,
        seconds=seconds,
        cpu_s=cpu_s,
    )


def measure_h2load(server: Server, load: H2Load, *, seconds: float) -> Round:
    """Run a load after a short warm-up; raise BenchError if nothing is answered."""
    run_h2load(load, seconds=_WARMUP_S)
    return measure_load(server, partial(run_counted, server, load, seconds), front=server)


def run_counted(server: Server, load: H2Load, seconds: float) -> tuple[Round, int]:
    """Run a load; return its figures and the number of answers.

    Of servers other than a gateway, calls that fail with a gRPC status are not counted as failed.
    """
    before = _failed_calls(server)
    found = run_h2load(load, seconds=seconds)
    failed = max(found.failed, _failed_calls(server) - before)
    busy = found.cpu_s / found.seconds if found.seconds else 0.0
    if not found.answers:
        raise BenchError(f"{load.url} answers nothing within {seconds:g} s; measure longer, with --seconds")
    figures = Round(
        requests_per_second=found.calls_per_second,
        p50=None,
        p99=None,
        generator_cpu=found.cpu_s / found.answers * 1000,
        fault=f"{plural(failed, 'call')} failed" if failed else "",
        void=f"h2load used {busy:.0%} of a processor" if busy > _MOST_BUSY else "",
    )
    return figures, found.answers


def _failed_calls(server: Server) -> int:
    """Count the gRPC calls that failed, which h2load takes for answered.

    At the end of a load, h2load abandons the open calls (499).
    """
    metrics = read_metrics(server)
    if "uncork_requests_total" not in metrics:
        return 0  # Other servers may answer with anything.
    total, *others = [
        sum_of(metrics, "uncork_requests_total", protocol="grpc", **labels)
        for labels in ({}, {"status": "200"}, {"status": "499"})
    ]
    return round(total - sum(others))
