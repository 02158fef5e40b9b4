"""Arrivals for simulations and load tests: times of an open loop, and clients of a closed loop."""

from __future__ import annotations

import math
import random
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import count as count_from
from itertools import islice, pairwise, takewhile
from pathlib import Path
from typing import Literal

# On/off traffic: the length of a phase, and the ratio of the rates of the two phases.
_ON_TO_OFF = 8.0
# The ratio of the higher rate of a step or spike to the lower one, and a spike's share of the time.
_RISE = 5.0
_SPIKE_SHARE = 0.1
_REPLAY = "replay:"
Sources = Literal["clients", "pool", "unknown"]
"""How the core identifies the client of a request.

``clients``: each client of a closed loop has its own connection, and every request of an open loop comes
from a new one. ``pool``: all requests share a pool of connections; a request takes the connection that was
freed last, or a new one if all are busy. ``unknown``: it cannot.
"""
ARRIVALS = ("poisson", "gamma:CV", "constant", "onoff", "ramp", "step", "spike", "replay:FILE")


@dataclass(frozen=True, slots=True, kw_only=True)
class Clients:
    """A closed loop: each client sends its next request after it has received a response.

    Attributes:
        count: number of clients.
        round_trip_s: from sending a response to receiving the client's next request, without think time.
        think_s: the client's think time.
        jitter: ``round_trip_s`` and ``think_s`` each vary uniformly by this share, up and down.
        request_s: the serial work of gateway and clients on each request: responses leave at least this far
            apart.
    """

    count: int
    round_trip_s: float = 0.0005
    think_s: float = 0.0
    jitter: float = 0.5
    request_s: float = 0.0

    def pause(self, random_: random.Random) -> float:
        """Draw the seconds from a response to the client's next request, without ``request_s``."""
        spread = self.jitter
        pause = self.round_trip_s * random_.uniform(1 - spread, 1 + spread)
        if self.think_s:
            pause += self.think_s * random_.uniform(1 - spread, 1 + spread)
        return pause


def open_loop(kind: str, *, rate: float, count: int, random_: random.Random) -> list[float]:
    """Return the arrival times in seconds of ``count`` requests, which do not wait for responses.

    ``kind`` is one of :data:`ARRIVALS`: ``poisson``; ``gamma:2`` (gaps of that coefficient of variation);
    ``constant`` (even gaps); ``onoff`` (phases of 400 ms with 8 times the rate of the phases between);
    ``ramp`` (the rate rises evenly from 0 to twice the average); ``step`` (5 times the rate in the second
    half of the time); ``spike`` (5 times the rate in the middle tenth of the time); ``replay:trace.csv``
    (recorded times in seconds, one per line, stretched to the rate and repeated as needed). ``rate`` is the
    average over time, in requests per second.

    Raises:
        ValueError: if there is no such kind, or a trace holds no rising times.
        OSError: if a trace cannot be read.
    """
    _require_positive(rate)
    return list(islice(_stream(kind, rate, count / rate, random_), count))


def open_loop_for(kind: str, *, rate: float | None, seconds: float, random_: random.Random) -> list[float]:
    """Return the arrival times below ``seconds``, of the kinds of :func:`open_loop`.

    Recorded arrivals keep their own rate if ``rate`` is None; other kinds need a rate.

    Raises:
        ValueError: if there is no such kind, it needs a rate, or a trace holds no rising times.
        OSError: if a trace cannot be read.
    """
    if rate is None:
        if not kind.startswith(_REPLAY):
            raise ValueError(f"{kind} arrivals require a rate; only {_REPLAY}FILE has its own")
        rate = recorded_rate(Path(kind.removeprefix(_REPLAY)))
    _require_positive(rate)
    return list(takewhile(lambda time: time < seconds, _stream(kind, rate, seconds, random_)))


def _require_positive(rate: float) -> None:
    if not 0 < rate < math.inf:
        raise ValueError(f"the arrival rate must be positive and finite, got {rate}")


def _stream(kind: str, rate: float, horizon_s: float, random_: random.Random) -> Iterator[float]:
    """Yield arrival times without end; ``ramp``, ``step`` and ``spike`` extend over ``horizon_s``."""
    if kind == "poisson":
        return _poisson(rate, random_)
    if match := re.fullmatch(r"gamma:(\d+(?:\.\d+)?)", kind):
        return _gamma(rate, float(match[1]), random_)
    if kind.startswith(_REPLAY):
        return _replay(Path(kind.removeprefix(_REPLAY)), rate)
    shapes: dict[str, Callable[[], Iterator[float]]] = {
        "constant": lambda: (number / rate for number in count_from(0)),
        "onoff": lambda: _phases(_on_off(rate), random_),
        "ramp": lambda: _ramp(rate, horizon_s, random_),
        "step": lambda: _phases(_step(rate, horizon_s), random_),
        "spike": lambda: _phases(_spike(rate, horizon_s), random_),
    }
    if kind not in shapes:
        raise ValueError(f"unknown arrivals {kind!r}; available: {', '.join(ARRIVALS)}")
    return shapes[kind]()


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


def _phases(phases: Iterable[tuple[float, float]], random_: random.Random) -> Iterator[float]:
    """Yield the arrival times of a Poisson stream in phases, given as (end, rate)."""
    now = 0.0
    for ends, rate in phases:
        while True:
            gap = random_.expovariate(rate)
            # A Poisson stream has no memory: it starts afresh at the new rate.
            if now + gap > ends:
                now = ends
                break
            now += gap
            yield now


def _on_off(rate: float) -> Iterator[tuple[float, float]]:
    off = 2 * rate / (1 + _ON_TO_OFF)
    for phase in count_from(0):
        yield (phase + 1) * 0.4, off if phase % 2 else off * _ON_TO_OFF


def _step(rate: float, horizon_s: float) -> list[tuple[float, float]]:
    low = 2 * rate / (1 + _RISE)
    return [(horizon_s / 2, low), (math.inf, low * _RISE)]


def _spike(rate: float, horizon_s: float) -> list[tuple[float, float]]:
    low = rate / (1 + (_RISE - 1) * _SPIKE_SHARE)
    begins = horizon_s * (1 - _SPIKE_SHARE) / 2
    return [(begins, low), (begins + horizon_s * _SPIKE_SHARE, low * _RISE), (math.inf, low)]


def _ramp(rate: float, horizon_s: float, random_: random.Random) -> Iterator[float]:
    # Until t, rate * t**2 / horizon requests arrive: invert that at the times of a stream of rate 1.
    for expected in _poisson(1.0, random_):
        yield math.sqrt(expected * horizon_s / rate)


def recorded_times(trace: Path) -> list[float]:
    """Return the times of a recording in seconds: two or more, finite, rising, not all equal.

    Raises:
        ValueError: if the file contains anything else.
        OSError: if it cannot be read.
    """
    try:
        recorded = [float(line.split(",")[0]) for line in trace.read_text().splitlines() if line.strip()]
    except ValueError as error:
        raise ValueError(f"{trace}: expected one time in seconds per line: {error}") from None
    if not all(map(math.isfinite, recorded)):
        raise ValueError(f"{trace}: expected finite times in seconds, one per line")
    if len(recorded) < 2 or sorted(recorded) != recorded or recorded[0] == recorded[-1]:
        raise ValueError(f"{trace}: expected at least two times, in ascending order")
    return recorded


def recorded_rate(trace: Path) -> float:
    """Return the requests per second of a recording.

    Raises:
        ValueError: if the file holds no rising times.
        OSError: if it cannot be read.
    """
    recorded = recorded_times(trace)
    return (len(recorded) - 1) / (recorded[-1] - recorded[0])


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
