"""What a closed-loop run found, in the few figures that the bench needs: plain frozen data."""

from dataclasses import dataclass


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
