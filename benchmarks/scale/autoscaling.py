"""One run of `uncork serve --workers 1-6` while the rate rises and falls: what was sampled, by time."""

from __future__ import annotations

import os
import random
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import httpx
import msgspec
import numpy as np

from benchmarks.harness.paths import SERVICES
from benchmarks.harness.rounds import Tell, run_plan
from uncork_loadtests.generator.fleet import Outcome
from uncork_loadtests.generator.samples import SHED, Samples, is_good, latencies_s, measured
from uncork_loadtests.generator.share import Progress
from uncork_loadtests.servers import BenchError, Server, words
from uncork_loadtests.targets import our_service
from uncork_loadtests.traffic.plan import REPLAY, Payload, Plan

INTERCEPT_MS, SLOPE_MS = 60, 15
GOAL_MS = 400
LIMIT_ROWS = 16
LEAST, MOST = 1, 6
WINDOW_S = 10.0
"""Length of the intervals of p99 and goodput: at 40 rows/s, the p99 is the fourth highest of 400."""
_SERVICE = f"{SERVICES / 'sleep.py'}:Sleep"
_SEED = 1


class Step(NamedTuple):
    """A rate of requests with one row, for so many seconds."""

    rate: float
    seconds: float


# The last step shows how workers are stopped: the peak counts for 5 minutes.
STEPS = (Step(40, 45), Step(80, 45), Step(160, 45), Step(80, 45), Step(40, 405))


class Sighting(NamedTuple):
    """What `/status` said at a time, in seconds since the start."""

    at_s: float
    wanted: int
    target: int
    ready: int
    sentence: str


@dataclass(frozen=True, kw_only=True)
class Window:
    """The requests that were due in an interval.

    Attributes:
        from_s, to_s: the interval, in seconds since the start.
        requests: how many.
        in_goal: those with a good answer within the goal.
        shed: those refused with 503.
        p99_ms: of the good answers; None without any.
    """

    from_s: float
    to_s: float
    requests: int
    in_goal: int
    shed: int
    p99_ms: float | None

    @property
    def seconds(self) -> float:
        """The length of the interval."""
        return self.to_s - self.from_s


@dataclass(frozen=True, kw_only=True)
class Run:
    """A run: its traffic, its sightings, and how busy the machine was."""

    steps: Sequence[Step]
    sightings: Sequence[Sighting]
    outcome: Outcome
    load_averages: tuple[float, float]
    """Of the machine over one minute: before the run and at its end."""

    def windows(self) -> list[Window]:
        """Return the run in intervals of WINDOW_S; the last one may be shorter."""
        end_s = sum(step.seconds for step in self.steps)
        borders = [*np.arange(0.0, end_s, WINDOW_S).tolist(), end_s]
        return windows(self.outcome.samples, borders)

    def by_step(self) -> list[tuple[Step, Window, Sighting | None]]:
        """Return each step with its requests, and the last sighting in it."""
        borders = [0.0, *np.cumsum([step.seconds for step in self.steps]).tolist()]
        found = windows(self.outcome.samples, borders)
        return [
            (step, window, self._last_sighting(window))
            for step, window in zip(self.steps, found, strict=True)
        ]

    def _last_sighting(self, window: Window) -> Sighting | None:
        within = [one for one in self.sightings if window.from_s <= one.at_s < window.to_s]
        return within[-1] if within else None

    def changes(self) -> list[tuple[int, Sighting]]:
        """Return the sightings with another target than the one before, with the target before."""
        return [(a.target, b) for a, b in pairwise(self.sightings) if a.target != b.target]


def windows(samples: Samples, borders: Sequence[float]) -> list[Window]:
    """Summarise the requests between borders, in seconds since the start."""
    return [_window(samples, from_s, to_s) for from_s, to_s in pairwise(borders)]


def _window(samples: Samples, from_s: float, to_s: float) -> Window:
    due = samples["scheduled_s"]
    ours = samples[(due >= from_s) & (due < to_s)]
    latencies = latencies_s(ours[is_good(ours)])
    p99_ms = None
    if len(latencies):
        p99_ms = float(np.quantile(latencies, 0.99, method="inverted_cdf")) * 1000
    return Window(
        from_s=from_s,
        to_s=to_s,
        requests=len(ours),
        in_goal=int((latencies <= GOAL_MS / 1000).sum()),
        shed=int((ours["status"] == SHED).sum()),
        p99_ms=p99_ms,
    )


def arrivals(steps: Sequence[Step], *, seed: int) -> Iterator[float]:
    """Yield Poisson arrivals of each step after the other, in seconds; the first one is at 0."""
    draw, begin_s = random.Random(seed), 0.0
    yield 0.0
    for step in steps:
        at_s, end_s = begin_s + draw.expovariate(step.rate), begin_s + step.seconds
        while at_s < end_s:
            yield at_s
            at_s += draw.expovariate(step.rate)
        begin_s = end_s


def measure(steps: Sequence[Step], *, tell: Tell) -> Run:
    """Serve the sleeping model, and put the steps on it.

    Raises:
        BenchError: if the gateway does not start or does not answer, or the generator fails.
    """
    os.environ["PEER_INTERCEPT_MS"], os.environ["PEER_SLOPE_MS"] = str(INTERCEPT_MS), str(SLOPE_MS)
    options = {
        "--workers": f"{LEAST}-{MOST}",
        "--mb-max-latency": GOAL_MS,
        "--mb-max-batch-size": LIMIT_ROWS,
        "--log-level": "error",
    }
    sightings: list[Sighting] = []
    seconds = sum(step.seconds for step in steps)
    before = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as folder, our_service(_SERVICE, options=words(options)) as server:

        def watch(progress: Progress) -> None:
            sightings.append(look(server, at_s=progress.at_s))
            tell(f"{progress.at_s:.0f} of {seconds:g} s: {sightings[-1].sentence}")

        outcome = run_plan(_plan(server, steps, seconds=seconds, folder=Path(folder)), tell=watch)
    return Run(
        steps=steps,
        sightings=sightings,
        outcome=outcome,
        load_averages=(before, os.getloadavg()[0]),
    )


def _plan(server: Server, steps: Sequence[Step], *, seconds: float, folder: Path) -> Plan:
    recording = folder / "arrivals.csv"
    recording.write_text("\n".join(f"{at_s:.6f}" for at_s in arrivals(steps, seed=_SEED)))
    return Plan(
        url=server.url("/predict"),
        payload=Payload(bodies=(b"[5.1,3.5,1.4,0.2]",), expected=(b"10.2",)),
        arrivals=f"{REPLAY}{recording}",
        seconds=seconds,
        # A warm-up would be part of the traffic that the autoscaler remembers.
        warmup_s=0.0,
        goal_s=GOAL_MS / 1000,
    )


class _Worker(msgspec.Struct):
    state: str


class _Scaling(msgspec.Struct):
    wanted: int
    target: int
    sentence: str


class _Status(msgspec.Struct):
    scaling: _Scaling | None
    workers: list[_Worker]


def look(server: Server, *, at_s: float) -> Sighting:
    """Read `/status`; raise BenchError if it does not answer."""
    try:
        reply = httpx.get(server.admin_url("/status"), trust_env=False)
    except httpx.HTTPError as error:
        raise BenchError(f"/status does not answer: {error}\n{server.last_words()}") from error
    return sighting(reply.content, at_s=at_s)


def sighting(status: bytes, *, at_s: float) -> Sighting:
    """Read a document of `/status`. Before the first decision, the ready workers count as wanted."""
    found = msgspec.json.decode(status, type=_Status)
    ready = sum(worker.state in ("idle", "busy") for worker in found.workers)
    scaling = found.scaling or _Scaling(wanted=ready, target=ready, sentence="no decision yet")
    return Sighting(at_s, scaling.wanted, scaling.target, ready, scaling.sentence)


def lag_p99_ms(outcome: Outcome) -> float:
    """Return how late the generator got to its requests."""
    ours = measured(outcome.samples)
    return float(np.quantile(ours["fired_s"] - ours["scheduled_s"], 0.99, method="inverted_cdf")) * 1000
