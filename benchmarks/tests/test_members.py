"""Other choices of members take effect in the dispatcher's core, and only while they are chosen."""

from __future__ import annotations

import pytest

from benchmarks.models.members import MEMBERS
from tests.dispatcher.core.test_lengths import Padded

QUEUED = (17, 300, 30, 16, 20)


def batches_with(name: str) -> list[list[float]]:
    """Return the lengths in each batch of the same requests, by a core that knows its model."""
    with MEMBERS[name]():
        on = Padded(fixed_s=0.002, max_batch_rows=1000)
        for lengths in [(10,), (100,), (400,), (50, 60), (100, 130), (20, 300)] * 10:
            on.submit(*lengths)
            on.run_all()
        on.submit(*QUEUED)
        return [[on.lengths[request] for request in requests] for requests in on.run_all()]


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
