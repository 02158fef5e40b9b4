"""When requests arrive in a simulation, and what clients that wait for their answers do."""

from __future__ import annotations

import math
import random
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice, pairwise
from pathlib import Path

# On/off traffic: phases of this length, and how much more arrives in the first of the two.
_PHASE_S = 0.4
_ON_TO_OFF = 8.0
_STEP = 5.0
ARRIVALS = ("poisson", "gamma:CV", "onoff", "step", "replay:FILE")


@dataclass(frozen=True, slots=True, kw_only=True)
class Clients:
    """A closed loop: each client sends its next request when it has had its answer.

    Attributes:
        count: clients.
        round_trip_s: from an answer leaving to the next request arriving, without thinking.
        think_s: what the client does in between.
        jitter: both vary evenly by this share of themselves, up and down.

    Raises:
        ValueError: if one of them is out of range.
    """

    count: int
    round_trip_s: float = 0.0005
    think_s: float = 0.0
    jitter: float = 0.5

    def __post_init__(self) -> None:
        times = (self.round_trip_s, self.think_s)
        if self.count < 1 or not 0 <= self.jitter <= 1 or not all(0 <= time < math.inf for time in times):
            raise ValueError(
                f"clients need a count, times of 0 s and more and a jitter of 0 to 1, got {self}"
            )

    def pause(self, random_: random.Random) -> float:
        """Seconds from an answer to the next request of the same client."""
        spread = self.jitter
        pause = self.round_trip_s * random_.uniform(1 - spread, 1 + spread)
        if self.think_s:
            pause += self.think_s * random_.uniform(1 - spread, 1 + spread)
        return pause


def open_loop(kind: str, *, rate: float, count: int, random_: random.Random) -> list[float]:
    """Arrival times in seconds of ``count`` requests that come whatever happens to earlier ones.

    ``kind`` is one of :data:`ARRIVALS`: ``poisson``; ``gamma:2`` (gaps of that coefficient of variation);
    ``onoff`` (phases of 400 ms with 8 times the rate of the phases between); ``step`` (5 times the
    rate in the second half of the time); ``replay:trace.csv`` (recorded seconds, one a line, stretched to
    the rate and repeated as often as needed). ``rate`` is the average over time, in requests per second.

    Raises:
        ValueError: if there is no such kind, or a trace holds no rising times.
        OSError: if a trace cannot be read.
    """
    if not 0 < rate < math.inf:
        raise ValueError(f"the arrival rate must be positive and finite, got {rate}")
    if kind == "poisson":
        return list(islice(_poisson(rate, random_), count))
    if match := re.fullmatch(r"gamma:(\d+(?:\.\d+)?)", kind):
        return list(islice(_gamma(rate, float(match[1]), random_), count))
    if kind == "onoff":
        return list(islice(_on_off(rate, random_), count))
    if kind == "step":
        return _step(rate, count, random_)
    if kind.startswith("replay:"):
        return list(islice(_replay(Path(kind.removeprefix("replay:")), rate), count))
    raise ValueError(f"there are no arrivals {kind!r}; there are {', '.join(ARRIVALS)}")


def _poisson(rate: float, random_: random.Random) -> Iterator[float]:
    now = 0.0
    while True:
        now += random_.expovariate(rate)
        yield now


def _gamma(rate: float, cv: float, random_: random.Random) -> Iterator[float]:
    if cv <= 0:
        raise ValueError(f"the coefficient of variation of gamma arrivals must be positive, got {cv}")
    shape = 1 / cv**2
    now = 0.0
    while True:
        now += random_.gammavariate(shape, 1 / (rate * shape))
        yield now


def _on_off(rate: float, random_: random.Random) -> Iterator[float]:
    off = 2 * rate / (1 + _ON_TO_OFF)
    phase = 0
    now = 0.0
    while True:
        ends = (phase + 1) * _PHASE_S
        gap = random_.expovariate(off if phase % 2 else off * _ON_TO_OFF)
        # What a Poisson stream of another rate would do from here on does not depend on the past.
        if now + gap > ends:
            now = ends
            phase += 1
            continue
        now += gap
        yield now


def _step(rate: float, count: int, random_: random.Random) -> list[float]:
    low = 2 * rate / (1 + _STEP)
    half = count / rate / 2
    times: list[float] = []
    now = 0.0
    while len(times) < count:
        gap = random_.expovariate(low if now < half else low * _STEP)
        if now < half < now + gap:
            now = half
            continue
        now += gap
        times.append(now)
    return times


def recorded_times(trace: Path) -> list[float]:
    """The times of a recording, in seconds: two or more, finite, in rising order, not all the same.

    Raises:
        ValueError: if the file holds something else.
        OSError: if it cannot be read.
    """
    try:
        recorded = [float(line.split(",")[0]) for line in trace.read_text().splitlines() if line.strip()]
    except ValueError as error:
        raise ValueError(f"{trace}: a trace holds seconds, one a line: {error}") from None
    if not all(map(math.isfinite, recorded)):
        raise ValueError(f"{trace}: a trace holds finite seconds, one a line")
    if len(recorded) < 2 or sorted(recorded) != recorded or recorded[0] == recorded[-1]:
        raise ValueError(f"{trace}: a trace needs at least two times, in rising order")
    return recorded


def _replay(trace: Path, rate: float) -> Iterator[float]:
    recorded = recorded_times(trace)
    gaps = [after - before for before, after in pairwise(recorded)]
    stretch = len(gaps) / (recorded[-1] - recorded[0]) / rate
    now = 0.0
    while True:
        yield now
        for gap in gaps:
            now += gap * stretch
            yield now
        now += stretch * sum(gaps) / len(gaps)
