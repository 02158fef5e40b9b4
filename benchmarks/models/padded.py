"""Load an encoder that pads its batches, with different choices of the requests that share a batch.

Every contestant is a whole gateway with one worker. All run the same model on the same requests; only the
choice of members differs.
"""

import contextlib
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from benchmarks.harness.commands import environment
from benchmarks.harness.paths import SERVICES
from benchmarks.harness.rounds import Tell, ask_alone, interleave, round_of, run_plan
from benchmarks.models.agreement import Agreement, check_agreement
from benchmarks.models.lengths import Texts
from uncork_loadtests.generator.fleet import Outcome
from uncork_loadtests.generator.samples import has_long_body, is_good, latencies_s, measured
from uncork_loadtests.servers import HOST, Server, serve
from uncork_loadtests.traffic.plan import Payload, Plan

SERVICE = f"{SERVICES / 'encoder.py'}:Encoder"
# Compared before anything is measured.
_ANSWERS = 64
# Answers per client before anything is measured: a gateway learns from several full batches whether and how
# much padding costs.
_LEARNED_FROM = 10
_LONGEST_LEARNING_S = 60.0


@dataclass(frozen=True, kw_only=True)
class Contestant:
    """A choice of the requests that share a batch."""

    name: str
    members: str
    """A key of :data:`benchmarks.models.members.MEMBERS`."""
    policy: str
    path: str = "/embed"


CORK = Contestant(name="cork", members="rule", policy="cork")
FIFO = Contestant(name="FIFO, rows x longest", members="fifo", policy="fixed:0")
CONTESTANTS = (
    CORK,
    Contestant(name="cork, no cost", members="rule", policy="cork", path="/embed_without_cost"),
    Contestant(name="cork, sum of costs", members="sum", policy="cork"),
    FIFO,
    Contestant(name="length buckets", members="buckets", policy="fixed:0"),
)
Times = NDArray[np.float64]
"""Latencies in milliseconds."""


@dataclass(frozen=True, kw_only=True)
class Run:
    """One measurement of one contestant."""

    requests_per_s: float
    """Good answers."""
    times: Times
    """Of good answers."""
    long_times: Times
    """Of those to the longest tenth of the bodies."""
    rows_per_batch: float | None
    padding: float
    """Share of padding in the tokens that the worker computed."""
    fault: str
    void: str
    """Why it says nothing about the contestant, or ""."""


@dataclass(frozen=True, kw_only=True)
class Cell:
    """All contestants with one runtime and one distribution of lengths."""

    runtime: str
    texts: Texts
    agreement: Agreement
    rounds: Mapping[str, Sequence[Run]]
    """The runs of each contestant in valid rounds."""
    left_out: Sequence[str]
    """Why other rounds are not valid."""

    @property
    def faults(self) -> list[str]:
        """Reasons why the measurement failed."""
        if not self.rounds[CORK.name]:
            return [f"{self.runtime}, {self.texts.name}: no valid round remains"]
        return [
            f"{self.runtime}, {self.texts.name}: {name}: {run.fault}"
            for name, runs in self.rounds.items()
            for run in runs
            if run.fault
        ]


def measure_cell(
    runtime: str, texts: Texts, *, plan: Plan, options: Sequence[str], rounds: int, tell: Tell
) -> Cell:
    """Check the answers, then measure every contestant in every round.

    Raises:
        BenchError: if an answer differs in a batch, or a server or generator fails.
    """
    bodies = texts.bodies()
    title = f"{runtime}, {texts.name}"
    plan = replace(plan, payload=Payload(bodies=bodies))
    with _servers(runtime, plan, options=options, tell=tell) as servers:
        tell(f"{title}: requesting answers alone, then all at once")
        agreement = check_agreement(servers[FIFO.name], path=FIFO.path, bodies=bodies[:_ANSWERS])

        def measure(name: str, number: int) -> Run:
            # The contestants get through different numbers of bodies: no round may begin like the others.
            shuffled = replace(plan, payload=plan.payload.shuffled(str(number)))
            return _run(servers[name], shuffled, path=_PATHS[name])

        found = interleave(list(servers), rounds=rounds, measure=measure, tell=tell, title=title)
    valid, left_out = without_void(found)
    return Cell(runtime=runtime, texts=texts, agreement=agreement, rounds=valid, left_out=left_out)


def without_void(
    found: Mapping[str, Sequence[Run]],
) -> tuple[dict[str, list[Run]], list[str]]:
    """Drop the rounds in which a run is void; also return why."""
    reasons = {
        number: f"round {number + 1} left out: {name}: {run.void}"
        for name, runs in found.items()
        for number, run in enumerate(runs)
        if run.void
    }
    valid = {
        name: [run for number, run in enumerate(runs) if number not in reasons]
        for name, runs in found.items()
    }
    return valid, [reasons[number] for number in sorted(reasons)]


def run_of(outcome: Outcome, *, work: tuple[int, int]) -> Run:
    """Summarise a run during which the worker computed so many tokens, without and with padding."""
    ours, summary = measured(outcome.samples, seconds=outcome.measured_s), outcome.summary()
    is_long = has_long_body(ours)[is_good(ours)]
    good = ours[is_good(ours)]
    times: Any = latencies_s(good) * 1000
    tokens, padded = work
    return Run(
        requests_per_s=summary.answered_per_s,
        times=times,
        long_times=times[is_long],
        rows_per_batch=summary.batch_rows_by_batch,
        padding=1 - tokens / padded if padded else 0.0,
        fault=round_of(outcome).fault,
        void=outcome.void,
    )


_PATHS = {each.name: each.path for each in CONTESTANTS}


def _run(server: Server, plan: Plan, *, path: str) -> Run:
    tokens, padded = _work(server)
    outcome = run_plan(replace(plan, url=server.url(path)))
    tokens_after, padded_after = _work(server)
    return run_of(outcome, work=(tokens_after - tokens, padded_after - padded))


def _work(server: Server) -> tuple[int, int]:
    """Return the tokens that the worker has computed so far, without and with padding."""
    [answer] = ask_alone(server, path="/work", bodies=[b"0"])
    return msgspec.json.decode(answer, type=tuple[int, int])


@contextlib.contextmanager
def _servers(runtime: str, plan: Plan, *, options: Sequence[str], tell: Tell) -> Iterator[dict[str, Server]]:
    """Run a gateway with the plan's goal for each contestant until the block ends; let it learn first."""
    assert plan.goal_s is not None
    assert plan.clients is not None
    lesson = replace(plan, limit=_LEARNED_FROM * plan.clients, seconds=_LONGEST_LEARNING_S, warmup_s=0.0)
    with contextlib.ExitStack() as stack:
        servers = {}
        for each in CONTESTANTS:
            tell(f"{runtime}: starting {each.name}")
            command = _command(each, runtime, [*options, "--mb-max-latency", f"{plan.goal_s * 1000:g}"])
            servers[each.name] = server = stack.enter_context(serve(each.name, command=command))
            run_plan(replace(lesson, url=server.url(each.path)))
        yield servers


def _command(each: Contestant, runtime: str, options: Sequence[str]) -> list[str]:
    # One thread: the gateway and the generator need the other processor of a small machine.
    variables = environment({"ENCODER_RUNTIME": runtime, "OMP_NUM_THREADS": 1})
    gateway = [sys.executable, "-m", "benchmarks.models.members", each.members]
    serve = ["serve", SERVICE, "--host", HOST, "--no-state", "--policy", each.policy]
    return [*variables, *gateway, *serve, *options]
