"""Poison: one bad row in a full batch, and when its neighbours have their answers."""

import asyncio
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from itertools import count
from random import Random
from statistics import median

import uvloop

from benchmarks.chaos.gateway import Gateway
from benchmarks.chaos.questions import Act, Question, ask
from benchmarks.chaos.streams import Stream, connected, read_reply
from benchmarks.fault_costs.findings import Finding, Tell
from benchmarks.fault_costs.model import FIXED_MS, ROW_MS, sleeping_model
from benchmarks.fault_costs.snapshots import read_metrics, sum_of
from benchmarks.harness.sheets import Sheet, text
from benchmarks.peers.tables import interval_text
from uncork_loadtests.generator.http_reply import Reply, ReplyError
from uncork_loadtests.intervals import median_interval
from uncork_loadtests.servers import BenchError, Server

_WORKERS = 2
_TOGETHER = 64
_ROUNDS = 20
_WARM_UPS = 2
# Released when all are there, and not before: they share one batch.
_POLICY = f"fixed:5000:{_TOGETHER}"
_WITHIN_S = 60.0
_READY_S = 60.0


@dataclass(frozen=True, kw_only=True)
class Kind:
    """A row that is poison, or none."""

    name: str
    act: Act = ""
    status: int | None = None
    """What it must be answered with; None if there is none."""
    every: int = 1
    """Tried in one round of so many."""

    @property
    def others(self) -> int:
        """Requests in the batch that are no poison."""
        return _TOGETHER - bool(self.act)


CLEAN = Kind(name="none")
KINDS = (
    CLEAN,
    Kind(name="raises at once", act="raise", status=500),
    Kind(name="raises at the end", act="raise late", status=500),
    Kind(name="kills its worker", act="die", status=502, every=4),
)


@dataclass(frozen=True, kw_only=True)
class Trial:
    """Requests that shared a batch, one of them perhaps poison."""

    kind: Kind
    round: int
    right: int
    """Of those that are no poison, how many were answered rightly."""
    status: int | None
    """What the poison was answered with; None: not at all, or there was none."""
    last_s: float
    """When the last of those that are no poison had its answer."""

    @property
    def fault(self) -> str:
        """What must not be; empty if all is well."""
        what = f"poison: {self.kind.name}"
        if self.right != self.kind.others:
            return f"{what}: {self.right} of {self.kind.others} others were answered rightly"
        return "" if self.status == self.kind.status else f"{what}: it got {self.status}"


def measure_poison(*, tell: Tell) -> Finding:
    """Ask in batches with and without poison, in turns.

    Raises:
        BenchError: if the gateway does not start, or does not recover.
    """
    options = {"--mb-max-batch-size": _TOGETHER, "--mb-max-latency": _WITHIN_S * 1000, "--policy": _POLICY}
    with sleeping_model(options, workers=_WORKERS) as server:
        return finding(uvloop.run(_trials(server, tell=tell)))


async def _trials(server: Server, *, tell: Tell) -> list[Trial]:
    gateway = Gateway(server, workers=_WORKERS)
    numbers, random = count(1), Random(1)
    watching = asyncio.create_task(gateway.watch())
    trials = []
    try:
        for round_ in range(-_WARM_UPS, _ROUNDS):
            for kind in KINDS if round_ >= 0 else (CLEAN,):
                if round_ % kind.every:
                    continue
                tell(f"poison that is {kind.name}, round {round_ + 1} of {_ROUNDS}")
                if not await gateway.all_ready(within_s=_READY_S):
                    raise BenchError(f"not all workers became ready:\n{server.last_words()}")
                trials.append(await try_batch(server, kind, round_=round_, numbers=numbers, random=random))
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
    return [trial for trial in trials if trial.round >= 0]


async def try_batch(
    server: Server, kind: Kind, *, round_: int, numbers: "count[int]", random: Random
) -> Trial:
    """Have one batch run, with the poison anywhere in it.

    Raises:
        BenchError: if the requests did not share a batch.
    """
    bad = random.randrange(_TOGETHER) if kind.act else None
    questions = [ask(next(numbers), act=kind.act if at == bad else "") for at in range(_TOGETHER)]
    full = await _full_batches(server)
    answers = await ask_together(server.port, questions)
    if await _full_batches(server) != full + 1:
        raise BenchError(f"{_TOGETHER} requests did not share one batch")
    poisoned = answers.pop(bad)[0] if bad is not None else None
    asked = [question for at, question in enumerate(questions) if at != bad]
    return Trial(
        kind=kind,
        round=round_,
        right=sum(_is_right(reply, to=question) for (reply, _), question in zip(answers, asked, strict=True)),
        status=poisoned.head.status if poisoned is not None else None,
        last_s=max(after_s for _, after_s in answers),
    )


def _is_right(reply: Reply | None, *, to: Question) -> bool:
    return reply is not None and reply.head.status == 200 and to.is_answered_by(reply.body)


async def _full_batches(server: Server) -> float:
    metrics = await asyncio.to_thread(read_metrics, server)
    return sum_of(metrics, "uncork_releases_total", reason="full")


async def ask_together(port: int, questions: Sequence[Question]) -> list[tuple[Reply | None, float]]:
    """Send all at once, each on a connection of its own; gives each answer, and the seconds to it.

    What is no answer counts as none. Raises OSError if the server cannot be reached.
    """
    async with AsyncExitStack() as stack:
        streams = [await stack.enter_async_context(connected(port)) for _ in questions]
        start_s = time.monotonic()
        for (_, writer), question in zip(streams, questions, strict=True):
            writer.write(question.request)
        return await asyncio.gather(*(_answer(stream, start_s=start_s) for stream in streams))


async def _answer(stream: Stream, *, start_s: float) -> tuple[Reply | None, float]:
    try:
        async with asyncio.timeout(_WITHIN_S):
            reply = await read_reply(stream[0])
    except (TimeoutError, ReplyError):
        reply = None
    return reply, time.monotonic() - start_s


def finding(trials: Sequence[Trial]) -> Finding:
    """Put together what was seen; times are held against the clean batch of the same round."""
    clean_s = {trial.round: trial.last_s for trial in trials if trial.kind == CLEAN}
    rows = []
    for kind in KINDS:
        seen = [trial for trial in trials if trial.kind == kind]
        times_ms = [trial.last_s * 1000 for trial in seen]
        ratios = [trial.last_s / clean_s[trial.round] for trial in seen]
        rows.append(
            [
                kind.name,
                str(len(seen)),
                f"{min(trial.right for trial in seen)} of {kind.others}",
                ", ".join(sorted({str(trial.status or "-") for trial in seen})),
                text(median(times_ms), digits=0),
                text(max(times_ms), digits=0),
                interval_text(median_interval(ratios)) if kind.act else "-",
            ]
        )
    return Finding(
        paragraph=f"""
            Poison: {_TOGETHER} requests that share a batch of {FIXED_MS:g} + {ROW_MS:g} n ms, one of which
            makes the handler raise, before it has computed or after, or kills the worker, of which there are
            {_WORKERS}. Right is the least number of right answers that the others got in a trial; the time is
            that until the last of them was there, beside the clean batch of the same round.
        """,
        sheets=[
            Sheet(
                title=f"One poisoned row among {_TOGETHER}",
                columns=[
                    "poison",
                    "trials",
                    "others right",
                    "it got",
                    "median ms",
                    "most ms",
                    "/ clean (95 %)",
                ],
                rows=rows,
            )
        ],
        faults=[trial.fault for trial in trials if trial.fault],
    )
