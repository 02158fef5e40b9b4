"""Whether overlapping stages pay: what a worker decides from the times of its batches."""

from uncork_workers.process.stages import Overlap


def run(overlap: Overlap, batches: int, *, serial_s: float, overlapped_s: float) -> list[bool]:
    """Run batches of 8 to 15 rows; return which of them overlapped."""
    ways = []
    for number in range(batches):
        rows, way = 8 + number % 8, overlap.is_on
        ways.append(way)
        overlap.observe(rows, rows * (overlapped_s if way else serial_s), has_overlapped=way)
    return ways


def test_both_ways_are_tried_and_the_faster_is_kept() -> None:
    ways = run(Overlap(), 516, serial_s=2, overlapped_s=1)
    assert ways == [False] * 8 + [True] * 508

    ways = run(Overlap(), 516, serial_s=1, overlapped_s=7)
    assert ways == [False] * 8 + [True] * 8 + [False] * 500


def test_a_gain_that_cannot_be_told_from_none_is_not_taken() -> None:
    assert not any(run(Overlap(), 100, serial_s=1, overlapped_s=0.97)[16:])


def test_without_gain_trials_become_rare() -> None:
    ways = run(Overlap(), 30_000, serial_s=1, overlapped_s=7)

    assert sum(ways) == 8 * 7


def test_overlap_ends_when_it_stops_to_pay_and_returns_when_it_pays() -> None:
    overlap = Overlap()
    run(overlap, 516, serial_s=2, overlapped_s=1)

    assert not run(overlap, 600, serial_s=2, overlapped_s=14)[-1]
    assert run(overlap, 2000, serial_s=2, overlapped_s=1)[-1]


def test_batches_that_run_alone_say_how_long_they_take_without_overlap() -> None:
    overlap = Overlap()
    run(overlap, 20, serial_s=1, overlapped_s=1)
    assert not overlap.is_on

    for _ in range(40):
        overlap.observe(8, 16, has_overlapped=False)
    run(overlap, 1000, serial_s=2, overlapped_s=1)

    assert overlap.is_on
