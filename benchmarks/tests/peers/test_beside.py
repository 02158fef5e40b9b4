"""The table of Uncork beside each peer."""

from __future__ import annotations

from benchmarks.peers.tables import beside_sheet
from benchmarks.tests.peers.made_up_rounds import result, rounds

POINT = ("sleep", "closed loop, 64 clients")


def test_a_row_has_the_ratio_to_each_peer_in_its_best_setting() -> None:
    fast = result(
        uncork=rounds(requests_per_second=[200.0] * 3, p99=[0.01] * 3),
        fast_0=rounds(requests_per_second=[100.0] * 3, p99=[0.005] * 3),
        fast_10=rounds(requests_per_second=[400.0] * 3, p99=[0.04] * 3),
    )
    slow = result(
        uncork=rounds(requests_per_second=[300.0] * 3, p99=[0.01] * 3),
        slow=rounds(requests_per_second=[100.0] * 3, p99=[0.1] * 3),
    )

    rates = beside_sheet([fast, slow], figure="requests_per_second")
    tails = beside_sheet([fast, slow], figure="p99")

    assert rates.columns == ["model", "load", "uncork", "fast", "slow"]
    assert rates.rows == [[*POINT, "250", "0.50 (0.50 .. 0.50)", "3.00 (3.00 .. 3.00)"]]
    assert "above 1 is better" in rates.notes[0]
    assert tails.columns[2] == "uncork ms"
    assert tails.rows == [[*POINT, "10.0", "2.00 (2.00 .. 2.00)", "0.10 (0.10 .. 0.10)"]]
    assert "below 1 is better" in tails.notes[0]
