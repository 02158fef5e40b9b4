"""Poison: one bad row in a full batch, and the latency of its neighbours."""

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
from benchmarks.fault_costs.findings import Finding
from benchmarks.fault_costs.model import FIXED_MS, ROW_MS, sleeping_model
from benchmarks.harness.metrics import read_metrics, sum_of
from benchmarks.harness.rounds import Tell
from benchmarks.harness.sheets import Sheet, interval_text, text
from uncork_loadtests.generator.http_reply import Reply, ReplyError
from uncork_loadtests.intervals import median_interval
from uncork_loadtests.servers import BenchError, Server

_WORKERS = 2
_TOGETHER = 64
_ROUNDS = 20
_WARM_UPS = 2
# Releases when all requests are queued, so that they share one batch.
_POLICY = f"fixed:5000:{_TOGETHER}"
_WITHIN_S = 60.0
_READY_S = 60.0


@dataclass(frozen=True, kw_only=True)
class Kind:
    """A kind of poisoned row, or none."""

    name: str
    act: Act = ""
    status: int | None = None
    """Required status of the poisoned request; None without one."""
    every: int = 1
    """Tried in every nth round."""

    @property
    def others(self) -> int:
        """Number of its neighbours in the batch."""
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
    """One batch."""

    kind: Kind
    round: int
    right: int
    """Neighbours with a right answer."""
    status: int | None
    """Status of the poisoned request; None without an answer or without poison."""
    last_s: float
    """When the last neighbour was answered."""

    @property
    def fault(self) -> str:
        """What went wrong, or ""."""
        what = f"poison: {self.kind.name}"
        if self.right != self.kind.others:
            return f"{what}: {self.right} of {self.kind.others} others got the right answer"
        if self.status != self.kind.status:
            return f"{what}: the poisoned request got {self.status or 'no answer'}"
        return ""


def measure_poison(*, tell: Tell) -> Finding:
    """Send batches with and without poison, in turns.

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
                tell(f"poison: {kind.name}, round {round_ + 1} of {_ROUNDS}")
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
    """Run one batch, with the poison at a random place.

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
        status=poisoned.status if poisoned is not None else None,
        last_s=max(after_s for _, after_s in answers),
    )


def _is_right(reply: Reply | None, *, to: Question) -> bool:
    return reply is not None and reply.status == 200 and to.is_answered_by(reply.body)


async def _full_batches(server: Server) -> float:
    metrics = await asyncio.to_thread(read_metrics, server)
    return sum_of(metrics, "uncork_releases_total", reason="full")


async def ask_together(port: int, questions: Sequence[Question]) -> list[tuple[Reply | None, float]]:
    """Send all requests at once on separate connections; return each answer, if valid, and its latency.

    Raises:
        OSError: if the server cannot be reached.
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
    """Tabulate the trials; times are compared with the clean batch of the same round."""
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
            **Poison**: {_TOGETHER} requests share a batch of {FIXED_MS:g} + {ROW_MS:g} n ms on one of
            {_WORKERS} workers. One of them makes the handler raise, before or after it computes, or kills
            the worker. *Others right* is the lowest number of right answers to the others in a trial. The
            time ends when the last of them arrives; the ratio is to the clean batch of the same round.
        """,
        sheets=[
            Sheet(
                title=f"One poisoned row among {_TOGETHER}",
                columns=[
                    "poison",
                    "trials",
                    "others right",
                    "poisoned request",
                    "median ms",
                    "longest ms",
                    "/ clean (95 %)",
                ],
                rows=rows,
            )
        ],
        faults=[trial.fault for trial in trials if trial.fault],
    )
