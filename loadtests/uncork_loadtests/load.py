"""What a closed-loop run is asked to do, and what it found: plain frozen data."""

import urllib.parse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, kw_only=True)
class Load:
    """A closed-loop load: every connection sends its next request when it has its answer."""

    url: str
    """Plain http, with the path that every request is posted to."""
    bodies: Sequence[bytes]
    """Sent round robin over all connections together."""
    expected: Sequence[bytes] | Callable[[bytes], bytes] | None = None
    """The right answer for each body, or a function of a body (called once for each)."""
    connections: int = 256
    seconds: float = 5.0
    """How long answers are counted."""
    warmup: float = 1.0
    """Seconds of the same load before that, which are discarded."""
    think: float = 0.0
    """Seconds a connection waits between an answer and its next request."""
    limit: int | None = None
    """Requests sent in the whole run at most, warm-up included; None: only time ends it."""
    content_type: str = "application/json"

    def __post_init__(self) -> None:
        parts = urllib.parse.urlsplit(self.url)
        if parts.scheme != "http" or not parts.hostname:
            raise ValueError(f"url must look like http://host:port/path, not {self.url!r}")
        if not self.bodies:
            raise ValueError("bodies must hold at least one body")
        if self.connections < 1:
            raise ValueError(f"connections must be at least 1, not {self.connections}")
        if self.seconds <= 0 or self.warmup < 0 or self.think < 0:
            raise ValueError("seconds must be above 0, warmup and think at least 0")
        if self.limit is not None and self.limit < 1:
            raise ValueError(f"limit must be at least 1, not {self.limit}")
        if isinstance(self.expected, Sequence) and len(self.expected) != len(self.bodies):
            raise ValueError(f"{len(self.bodies)} bodies but {len(self.expected)} expected answers")

    @property
    def address(self) -> tuple[str, int]:
        """Host and port to connect to."""
        parts = urllib.parse.urlsplit(self.url)
        return parts.hostname or "", parts.port or 80

    def requests(self) -> tuple[bytes, ...]:
        """Build the bytes of one request for each body."""
        parts = urllib.parse.urlsplit(self.url)
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        head = f"POST {target} HTTP/1.1\r\nHost: {parts.netloc}\r\n"
        head += f"Content-Type: {self.content_type}\r\nContent-Length: "
        return tuple(b"%s%d\r\n\r\n%s" % (head.encode(), len(b), b) for b in self.bodies)

    def answers(self) -> tuple[bytes, ...] | None:
        """Give the expected answer for each body, or None if answers are not to be compared."""
        if self.expected is None:
            return None
        if callable(self.expected):
            return tuple(self.expected(body) for body in self.bodies)
        return tuple(self.expected)


@dataclass(frozen=True, kw_only=True)
class Latency:
    """Seconds from sending a request to having its whole answer; each is a time that was seen."""

    p50: float
    p90: float
    p99: float
    max: float


@dataclass(frozen=True, kw_only=True)
class Result:
    """What a run found. Unless said otherwise, only the measured time is counted."""

    requests_per_second: float
    """Requests answered with 200, per second."""
    seconds: float
    """How long was measured."""
    statuses: dict[int, int]
    """Answers by HTTP status."""
    latency: Latency | None
    """Of the answers with 200; None if there were none."""
    batch_size_by_answer: float | None
    """Mean of X-Batch-Size over the answers: the batch a request finds itself in."""
    batch_size_by_batch: float | None
    """Mean size of the batches themselves, if every request carries one row."""
    cpu_seconds: float
    """Processor time the generator itself used."""
    answers_in_all: int
    """Answers of any status over the whole run, warm-up and end included."""
    errors: int
    """Connections lost while an answer was outstanding, over the whole run."""
    mismatches: int
    """Answers with 200 that were not the expected one, over the whole run."""
    first_mismatch: str
    """What was sent, expected and answered, shortened; empty if all was right."""
    unanswered: int
    """Requests whose answer had not come some seconds after the end."""


def percentiles(seconds: Sequence[float]) -> Latency | None:
    """Summarise latencies in seconds; None for an empty sequence."""
    if not seconds:
        return None
    # Nearest rank, not interpolated: an average of two modes is a latency nobody had.
    p50, p90, p99 = np.quantile(np.asarray(seconds), [0.5, 0.9, 0.99], method="inverted_cdf")
    return Latency(p50=float(p50), p90=float(p90), p99=float(p99), max=float(max(seconds)))


def batch_sizes(answers: Mapping[int, int]) -> tuple[float | None, float | None]:
    """From answers by batch size: the mean over answers, and the mean over batches.

    A batch of n is seen by n answers, so the mean over answers leans to the large ones.
    """
    count = sum(answers.values())
    if not count:
        return None, None
    by_answer = sum(size * seen for size, seen in answers.items()) / count
    return by_answer, count / sum(seen / size for size, seen in answers.items())
