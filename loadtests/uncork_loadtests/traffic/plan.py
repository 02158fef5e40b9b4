"""What a load test is asked to do: plain frozen data, handed to every generator process as it is."""

import math
import urllib.parse
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from uncork_dispatcher.plural import plural
from uncork_dispatcher.simulator.traffic import open_loop_for, recorded_rate
from uncork_loadtests.traffic.random_rows import RandomRows
from uncork_loadtests.traffic.tls import Tls

REPLAY = "replay:"
"""What the kind of recorded arrivals begins with."""


@dataclass(frozen=True, kw_only=True)
class Payload:
    """What requests carry: bodies that are sent in turn, random rows that make them, or a function that does.

    Raises:
        ValueError: if it is none of these or a function and another, or answers do not go with the bodies.
    """

    bodies: tuple[bytes, ...] = ()
    expected: tuple[bytes, ...] | None = None
    """The right answer to each body; None: answers are not compared."""
    random: RandomRows | None = None
    """What bodies are made of; there are none until it is known which numbers the service asks for."""
    function: str | None = None
    """MODULE:FUNCTION or FILE.py:FUNCTION: of a request's number, gives a body, or a body and its answer."""

    def __post_init__(self) -> None:
        if bool(self.bodies or self.random) == (self.function is not None):
            raise ValueError("a payload must hold at least one body, or random rows, or else a function")
        if self.expected is not None and len(self.expected) != len(self.bodies):
            raise ValueError(
                f"{plural(len(self.bodies), 'body', 'bodies')} but "
                f"{plural(len(self.expected), 'expected answer')}"
            )


@dataclass(frozen=True, kw_only=True)
class Plan:
    """One run: an open loop at a rate, or a closed loop of clients.

    Raises:
        ValueError: if a value is out of range, or there are no such arrivals.
        OSError: if recorded arrivals cannot be read.
    """

    url: str
    """http or https, with the path that every request is posted to."""
    payload: Payload
    content_type: str = "application/json"
    headers: tuple[tuple[str, str], ...] = ()
    """Further header fields of every request."""
    tls: Tls = field(default_factory=Tls)
    """For https."""
    arrivals: str = "poisson"
    """Open loop: one of uncork_dispatcher.simulator.ARRIVALS."""
    rate: float | None = None
    """Open loop: requests per second on average; None: as recorded."""
    clients: int | None = None
    """Closed loop: clients that each wait for their answer; None makes an open loop."""
    think_s: float = 0.0
    """Closed loop: what a client takes between an answer and its next request."""
    seconds: float = 10.0
    """How long is measured."""
    warmup_s: float = 1.0
    """Discarded time before: the same clients, or Poisson arrivals at the average rate."""
    seed: int = 1
    processes: int = 1
    """Generator processes, each with its share of the requests."""
    max_connections: int = 1024
    """Open loop: connections of all processes together; a closed loop has one for each client."""
    limit: int | None = None
    """Requests sent at most, warm-up included; None: only time ends the run."""
    goal_s: float | None = None
    """The latency goal that answers are judged by."""

    def __post_init__(self) -> None:
        parts = urllib.parse.urlsplit(self.url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"url must look like http://host:port/path or https://..., not {self.url!r}")
        self._check_numbers()
        if self.clients is None:
            # Wrong kinds and traces are told before anything is started.
            open_loop_for(self.arrivals, rate=self.rate, seconds=0.0, random_=Random(0))

    def _check_numbers(self) -> None:
        for name in ("clients", "limit", "processes", "max_connections"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} must be at least 1, not {value}")
        for name, least in (("warmup_s", 0.0), ("think_s", 0.0)):
            if not least <= getattr(self, name) < math.inf:
                raise ValueError(f"{name} must be at least {least:g}, not {getattr(self, name):g}")
        for name in ("seconds", "goal_s"):
            value = getattr(self, name)
            if value is not None and not 0 < value < math.inf:
                raise ValueError(f"{name} must be above 0, not {value:g}")
        connections = self.max_connections if self.clients is None else self.clients
        if connections < self.processes:
            raise ValueError(f"{self.processes} processes need as many connections, not {connections}")

    @property
    def address(self) -> tuple[str, int]:
        """Host and port to connect to."""
        parts = urllib.parse.urlsplit(self.url)
        return parts.hostname or "", parts.port or (443 if self.is_https else 80)

    @property
    def is_https(self) -> bool:
        """Whether the server speaks TLS."""
        return urllib.parse.urlsplit(self.url).scheme == "https"

    @property
    def average_rate(self) -> float:
        """Open loop: requests per second on average, those of the recording if none are asked for."""
        return recorded_rate(Path(self.arrivals.removeprefix(REPLAY))) if self.rate is None else self.rate

    def schedule(self) -> list[float]:
        """Open loop: when each request is due, in seconds from the start of what is measured.

        The warm-up lies before 0. The seed alone decides.
        """
        measured = open_loop_for(
            self.arrivals, rate=self.rate, seconds=self.seconds, random_=Random(self.seed)
        )
        before = open_loop_for(
            "poisson",
            rate=self.average_rate,
            seconds=self.warmup_s,
            random_=Random(f"warm-up of {self.seed}"),
        )
        return [*(time - self.warmup_s for time in before), *measured][: self.limit]

    def head(self) -> bytes:
        """All of a request's head before the length of its body."""
        parts = urllib.parse.urlsplit(self.url)
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        fields = [("Host", parts.netloc), ("Content-Type", self.content_type), *self.headers]
        lines = [f"POST {target} HTTP/1.1", *(f"{name}: {value}" for name, value in fields)]
        return ("\r\n".join(lines) + "\r\nContent-Length: ").encode()
