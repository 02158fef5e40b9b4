"""Ratios, marks and tables of the comparison with peers."""

import pytest

from benchmarks.harness.marks import at_least, at_most
from benchmarks.harness.rounds import Round
from benchmarks.peers.catalogue import ModelPoint
from benchmarks.peers.marks import BEST, LIMIT, Mark, closed_marks, open_marks, verdict
from benchmarks.peers.tables import beside_sheet
from benchmarks.tests.peers.made_up_rounds import result, rounds

LIGHT, MIDDLE = ModelPoint(intercept_ms=1, slope_ms=0.02), ModelPoint(intercept_ms=5, slope_ms=0.1)
POINT = ("sleep", "closed loop, 64 clients")
FASTER = Mark(figure="requests_per_second", rival=BEST, bound=at_least(1.2))


def rates(*found: float) -> list[Round]:
    return rounds(requests_per_second=found)


@pytest.mark.parametrize(
    ("bound", "state"),
    [
        (at_least(1.1), "met"),
        (at_least(1.2), "within the noise"),
        (at_least(1.4), "missed"),
        (at_most(1.3), "met"),
        (at_most(1.2), "within the noise"),
        (at_most(1.0), "missed"),
    ],
)
def test_a_mark_is_judged_by_the_interval(bound: object, state: str) -> None:
    mark = Mark(figure="requests_per_second", rival=BEST, bound=bound)  # type: ignore[arg-type]
    found = {"uncork": rates(110, 120, 120, 130, 115, 125), "a": rates(*[100] * 6), "b": rates(*[90] * 6)}

    judged = verdict(mark, found, ours="uncork", limit=None)

    assert (judged.rival, judged.state, judged.rounds) == ("a", state, 6)


def test_a_rival_is_the_limit_or_a_peer_in_its_best_setting() -> None:
    found = {"uncork": rounds(front_cpu=[3.0] * 5)}
    found |= {"mosec 0 ms": rounds(front_cpu=[5.0] * 5), "mosec 10 ms": rounds(front_cpu=[4.0] * 5)}
    found["mosecish"] = rounds(front_cpu=[1.0] * 5)
    thrift = Mark(figure="front_cpu", rival="mosec", bound=at_most(1.0))
    full = Mark(figure="requests_per_second", rival=LIMIT, bound=at_least(0.88))

    judged = verdict(thrift, found, ours="uncork", limit=None)
    share = verdict(full, found, ours="uncork", limit=125.0)

    assert (judged.rival, judged.state) == ("mosec 10 ms", "met")
    assert (share.rival, share.state) == (LIMIT, "missed")
    assert share.ratio is not None
    assert share.ratio.median == 0.8
    assert verdict(full, found, ours="uncork", limit=None).ratio is None
    assert verdict(thrift, {"mosec 0 ms": found["uncork"]}, ours="uncork", limit=None).ratio is None


def test_the_compiled_core_is_compared_but_is_no_peer() -> None:
    found = {"uncork": rates(100, 100), "uncork-compiled": rates(125, 125), "mosec 0 ms": rates(50, 50)}

    assert verdict(FASTER, found, ours="uncork", limit=None).rival == "mosec 0 ms"
    *_, last = closed_marks(LIGHT, clients=16, compiled=True)
    compared = verdict(last, found, ours="uncork", limit=None)
    assert (compared.rival, compared.ratio and compared.ratio.median) == ("uncork-compiled", 0.8)
    assert [mark.figure for mark in open_marks(LIGHT, compiled=True)][-2:] == ["p50", "p99"]


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
