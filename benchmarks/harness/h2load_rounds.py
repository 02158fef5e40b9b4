"""Measurements of servers with h2load, whose failed calls a gateway's metrics count."""

from functools import partial

from benchmarks.harness.h2load import H2Load, run_h2load
from benchmarks.harness.metrics import read_metrics, sum_of
from benchmarks.harness.rounds import Round, measure_load
from uncork_dispatcher.wording import plural
from uncork_loadtests.servers import BenchError, Server

_WARMUP_S = 0.5
# A generator that uses more of its processor than that may be what limits the rate.
_MOST_BUSY = 0.9


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
