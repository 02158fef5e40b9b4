"""Measurements of servers in interleaved rounds, with the generator of `uncork loadtest` or another."""

import http.client
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from benchmarks.harness.metrics import batches
from uncork_dispatcher.wording import plural
from uncork_loadtests.generator.fleet import Outcome, run
from uncork_loadtests.generator.samples import LOST, SHED, UNANSWERED, Spread, is_good, latencies_s, measured
from uncork_loadtests.servers import HOST, BenchError, Cpu, Server
from uncork_loadtests.traffic.plan import Payload, Plan

SOON_S = 0.3
"""The gateway's default latency goal; goodput counts what is answered within it."""
_LONE_SECONDS = 30.0
T = TypeVar("T")
Tell = Callable[[str], None]
"""Called with each step, in a few words."""


@dataclass(frozen=True, kw_only=True)
class Round:
    """One measurement of one server. Times are in seconds; None: unknown."""

    requests_per_second: float
    """Good answers."""
    p50: float | None
    p99: float | None
    in_goal: float | None = None
    """Share of all requests answered within the goal."""
    soon: float | None = None
    """Share of all requests answered within SOON_S."""
    front_cpu: float | None = None
    """Processor seconds per 1000 requests of the process that speaks HTTP."""
    all_cpu: float | None = None
    """The same, of all processes of the server."""
    rows_per_batch: float | None = None
    """As counted by a gateway of ours."""
    refused: int = 0
    """Answers with 503; with wrk, all that are not 2xx or 3xx."""
    wrong: int = 0
    unanswered: int = 0
    fault: str = ""
    """Anything wrong besides refusals, or ""."""
    void: str = ""
    """Why it says nothing about the server, or ""."""


Load = Callable[[Plan], tuple[Round, int]]
"""Runs a plan; returns its figures and the number of requests sent."""


@dataclass(frozen=True, kw_only=True)
class Target:
    """A running server, and the traffic for it."""

    server: Server
    front: Server
    """The process that speaks HTTP."""
    plan: Plan


def target(
    server: Server,
    *,
    path: str,
    bodies: Sequence[bytes],
    expected: Sequence[bytes],
    front: Server | None = None,
) -> Target:
    """Return a server as target of requests whose answers are known."""
    payload = Payload(bodies=tuple(bodies), expected=tuple(expected))
    plan = Plan(url=server.url(path), payload=payload, clients=1)
    return Target(server=server, front=front or server, plan=plan)


def interleave(
    names: Collection[str], *, rounds: int, measure: Callable[[str, int], T], tell: Tell, title: str = ""
) -> dict[str, list[T]]:
    """Measure every name in every round, counted from 1.

    Disturbances of the machine then affect all alike. Each round starts with another name. A name that
    `measure` removes from `names` is measured no more.
    """
    order = list(names)
    found: dict[str, list[T]] = {name: [] for name in order}
    for number in range(1, rounds + 1):
        first = (number - 1) % len(order) if order else 0
        for name in (*order[first:], *order[:first]):
            if name in names:
                tell(f"{f'{title}: ' if title else ''}round {number} of {rounds}, {name}")
                found[name].append(measure(name, number))
    return {name: each for name, each in found.items() if name in names}


def measure(each: Target, *, load: Load | None = None) -> Round:
    """Run the plan of a target, by default with our generator; nothing else should run meanwhile.

    Raises:
        BenchError: if the server or the generator fails.
    """
    server, front = each.server, each.front
    before, front_before, batches_before = server.cpu(), front.cpu(), batches(server)
    found, count = (load or _load)(each.plan)
    after, front_after, batches_after = server.cpu(), front.cpu(), batches(server)
    return replace(
        found,
        front_cpu=_per_1000(front_before, front_after, count=count, workers=False),
        all_cpu=_per_1000(before, after, count=count, workers=True),
        rows_per_batch=_rows_per_batch(batches_before, batches_after),
    )


def _load(plan: Plan) -> tuple[Round, int]:
    outcome = run_plan(plan)
    return round_of(outcome), len(outcome.samples)


def run_plan(plan: Plan) -> Outcome:
    """Run a plan; raise KeyboardInterrupt on Ctrl-C, even if there are samples."""
    outcome = run(plan)
    if outcome.interrupted:
        raise KeyboardInterrupt
    return outcome


def round_of(outcome: Outcome) -> Round:
    """Summarise a run, without the figures of the server's processes."""
    ours, summary = measured(outcome.samples, seconds=outcome.measured_s), outcome.summary()
    in_time = is_good(ours) & (latencies_s(ours) <= SOON_S)
    return Round(
        requests_per_second=summary.answered_per_s,
        p50=_seconds(summary.latency, "50"),
        p99=_seconds(summary.latency, "99"),
        in_goal=summary.in_goal,
        soon=float(in_time.mean()) if len(ours) else None,
        refused=summary.shed,
        wrong=summary.wrong,
        unanswered=int((ours["status"] == UNANSWERED).sum()),
        fault=_fault(summary.wrong, outcome.first_wrong, summary.statuses),
        void=outcome.void,
    )


def _fault(wrong: int, first_wrong: str, statuses: Mapping[int, int]) -> str:
    found = [f"{plural(wrong, 'wrong answer')}, the first: {first_wrong}"] if wrong else []
    others = {s: n for s, n in statuses.items() if s // 100 != 2 and s not in (SHED, LOST, UNANSWERED)}
    found += [f"{count} x {status}" for status, count in others.items()]
    if LOST in statuses:
        found.append(f"{plural(statuses[LOST], 'connection')} lost")
    if UNANSWERED in statuses:
        found.append(f"{plural(statuses[UNANSWERED], 'request')} never answered")
    return "; ".join(found)


def _seconds(spread: Spread | None, percentile: str) -> float | None:
    value_ms = spread.percentiles_ms[percentile] if spread else None
    return None if value_ms is None else value_ms / 1000


def _per_1000(before: Cpu | None, after: Cpu | None, *, count: int, workers: bool) -> float | None:
    if before is None or after is None or not count:
        return None
    used_s = after.server - before.server + (after.workers - before.workers if workers else 0.0)
    return used_s / count * 1000


def _rows_per_batch(before: tuple[float, float] | None, after: tuple[float, float] | None) -> float | None:
    if before is None or after is None or after[0] == before[0]:
        return None
    return (after[1] - before[1]) / (after[0] - before[0])


def ask_alone(server: Server, *, path: str, bodies: Sequence[bytes]) -> list[bytes]:
    """Send the bodies one after the other; return the answers.

    Raises:
        BenchError: if an answer is not 200.
    """
    connection = http.client.HTTPConnection(HOST, server.port, timeout=_LONE_SECONDS)
    answers = []
    try:
        for body in bodies:
            connection.request("POST", path, body, {"Content-Type": "application/json"})
            reply = connection.getresponse()
            answers.append(reply.read())
            if reply.status != 200:
                raise BenchError(
                    f"{server.name} answers {reply.status} to a single request: {answers[-1][:500]!r}"
                )
    except (OSError, http.client.HTTPException) as error:
        raise BenchError(f"{server.name} does not answer a single request: {error!r}") from error
    finally:
        connection.close()
    return answers
