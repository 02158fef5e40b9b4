"""Other choices of members take effect in the dispatcher's core, and only while they are chosen."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from benchmarks.models.members import MEMBERS
from uncork_dispatcher.core import Dispatcher
from uncork_dispatcher.requests.batch import Batch
from uncork_dispatcher.rules import ApiRules

FIXED_S, TOKEN_S = 0.002, 0.0001
QUEUED = (17, 300, 30, 16, 20)


class Core:
    """A core whose only worker pads each batch to its longest row."""

    def __init__(self) -> None:
        self.core = Dispatcher()
        self.core.set_api(ApiRules(name="a", policy="fixed:0", goal_s=60.0, max_batch_rows=1000))
        self.core.worker_ready(0, now=0.0)
        self.now = 0.0
        self.lengths: list[float] = []

    def run(self, lengths: Sequence[float]) -> list[Batch[Any]]:
        """Queue requests of one row each, run them, and return the batches."""
        for length in lengths:
            self.lengths.append(length)
            refused = self.core.submit(
                len(self.lengths), api="a", now=self.now, rows=length, count=1, longest=length
            )
            assert refused is None
        batches = []
        while starts := [each for each in self.core.poll(self.now) if isinstance(each, Batch)]:
            [start] = starts
            batches.append(start)
            members = self.lengths_of(start)
            self.now += FIXED_S + TOKEN_S * len(members) * max(members)
            assert self.core.batch_done(start.number, status="worked", now=self.now)
        return batches

    def lengths_of(self, start: Batch[Any]) -> list[float]:
        return [self.lengths[request - 1] for request in start.requests]


def batches_with(name: str) -> list[list[float]]:
    """Return the lengths in each batch of the same requests, by a core that knows its model."""
    with MEMBERS[name]():
        on = Core()
        for lengths in [(10,), (100,), (400,), (50, 60), (100, 130), (20, 300)] * 10:
            on.run(lengths)
        return [on.lengths_of(start) for start in on.run(QUEUED)]


@pytest.mark.parametrize(
    ("name", "batches"),
    [
        # The worker's fixed time is worth 20 tokens: 10 tokens of padding are cheaper than another batch.
        ("rule", [[17, 16, 20], [300], [30]]),
        # Rows x longest is limited to 1000 tokens, and the first three have 900.
        ("fifo", [[17, 300, 30], [16, 20]]),
        ("buckets", [[17, 30, 20], [300], [16]]),
        # The first 16, 17 and 20 with 30 have 120 tokens, and with 300 too many.
        ("sorted", [[17, 30, 16, 20], [300]]),
        ("razor", [[17, 16, 20], [300], [30]]),
        # 300 tokens take longer than all others.
        ("razor-minmax", [[300], [17, 16, 20], [30]]),
        # 383 tokens in all.
        ("sum", [[17, 300, 30, 16, 20]]),
    ],
)
def test_each_choice_makes_other_batches(name: str, batches: list[list[float]]) -> None:
    assert batches_with(name) == batches
