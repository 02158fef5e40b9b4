"""One measurement of a server: run a plan, judge the result, and repeat it while it is void."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from uncork_loadtests.generator.fleet import Outcome, run
from uncork_loadtests.generator.samples import Summary
from uncork_loadtests.servers import Cpu, Server
from uncork_loadtests.traffic.plan import Plan

_REPEATS = 2


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """The validity of a measurement, and its cost for the gateway."""

    failure: str
    """Why it failed, or ""."""
    wrong: int
    first_wrong: str
    void: str
    """Why it says nothing about the server, or ""."""
    gateway_cpu_us: float | None
    """Processor time per request, warm-up included; None if unknown."""


V = TypeVar("V", bound=Verdict)


def load(server: Server, plan: Plan) -> tuple[Outcome, Cpu | None]:
    """Run a plan; return its outcome and the CPU time per request, warm-up included.

    Ctrl-C raises KeyboardInterrupt, even if there are samples.
    """
    before = server.cpu()
    outcome = run(plan)
    after = server.cpu()
    if outcome.interrupted:
        raise KeyboardInterrupt
    count = len(outcome.samples)
    if before is None or after is None or not count:
        return outcome, None
    return outcome, Cpu(
        server=(after.server - before.server) / count, workers=(after.workers - before.workers) / count
    )


def verdict(outcome: Outcome, summary: Summary, cpu: Cpu | None) -> dict[str, Any]:
    """Return the fields of a :class:`Verdict`, to construct a subclass."""
    return {
        "failure": outcome.failure,
        "wrong": summary.wrong,
        "first_wrong": outcome.first_wrong,
        "void": outcome.void,
        "gateway_cpu_us": cpu.server * 1e6 if cpu is not None else None,
    }


def valid_if_possible(measure: Callable[[], V]) -> V:
    """Measure, and up to twice more while the measurement is void."""
    found = measure()
    for _ in range(_REPEATS):
        if found.void:
            found = measure()
    return found
