"""The measured service: a sleeping model with one right answer to each row."""

import contextlib
import os
from collections.abc import Iterator, Mapping

import msgspec

from benchmarks.chaos.questions import Row, right_answer
from benchmarks.harness.paths import SERVICES
from uncork_loadtests.servers import Server, words
from uncork_loadtests.targets import our_service
from uncork_loadtests.traffic.plan import Payload

FIXED_MS, ROW_MS = 20.0, 4.0
PATH = "/predict"
_SERVICE = f"{SERVICES / 'chaos.py'}:Chaos"
_BODIES = 1000


@contextlib.contextmanager
def sleeping_model(options: Mapping[str, object], *, workers: int) -> Iterator[Server]:
    """Run a gateway and workers with the model until the block ends.

    Raises:
        BenchError: if it does not become ready.
    """
    os.environ["CHAOS_FIXED_MS"], os.environ["CHAOS_ROW_MS"] = str(FIXED_MS), str(ROW_MS)
    options = {"--workers": workers, "--log-level": "error", **options}
    with our_service(_SERVICE, options=words(options)) as server:
        yield server


def limit_per_s(rows: int, *, workers: int) -> float:
    """Return the rows per second of the workers in full batches, if nothing else took time."""
    return workers * rows * 1000 / (FIXED_MS + ROW_MS * rows)


def payload() -> Payload:
    """Return different rows, each with its answer."""
    rows = [Row(number=number) for number in range(_BODIES)]
    return Payload(
        bodies=tuple(map(msgspec.json.encode, rows)),
        expected=tuple(msgspec.json.encode(right_answer(row)) for row in rows),
    )
