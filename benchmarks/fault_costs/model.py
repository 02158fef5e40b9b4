"""The service that is measured: a model that sleeps, with one right answer to each row."""

import contextlib
import os
from collections.abc import Iterator, Mapping

import msgspec

from benchmarks.chaos.questions import Row, answer
from benchmarks.harness.paths import SERVICES
from uncork_loadtests.servers import Server
from uncork_loadtests.targets import our_service
from uncork_loadtests.traffic.plan import Payload

FIXED_MS, ROW_MS = 20.0, 4.0
PATH = "/predict"
_SERVICE = f"{SERVICES / 'chaos.py'}:Chaos"
_BODIES = 1000


@contextlib.contextmanager
def sleeping_model(options: Mapping[str, object], *, workers: int) -> Iterator[Server]:
    """A gateway in front of so many workers with the model until the block ends.

    Raises:
        BenchError: if it does not become ready.
    """
    os.environ["CHAOS_FIXED_MS"], os.environ["CHAOS_ROW_MS"] = str(FIXED_MS), str(ROW_MS)
    pairs = {"--workers": workers, "--log-level": "error", **options}
    with our_service(_SERVICE, options=[text for pair in pairs.items() for text in map(str, pair)]) as server:
        yield server


def limit_per_s(rows: int, *, workers: int) -> float:
    """Rows per second that the workers could run in full batches of so many if nothing else took time."""
    return workers * rows * 1000 / (FIXED_MS + ROW_MS * rows)


def payload() -> Payload:
    """Different rows, each with its answer."""
    rows = [Row(number=number) for number in range(_BODIES)]
    return Payload(
        bodies=tuple(map(msgspec.json.encode, rows)),
        expected=tuple(msgspec.json.encode(answer(row)) for row in rows),
    )
