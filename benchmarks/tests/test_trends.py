"""Trends over runs of a benchmark."""

from pathlib import Path

from benchmarks.harness.trends import Points, append, sheet, thinned


def growing(percent_per_hour: float) -> Points:
    """An hour that begins at half its level, and then grows around 100."""
    return [
        (at_s, 50.0 if at_s < 700 else 100 + percent_per_hour * (at_s / 3600 - 0.6))
        for at_s in range(0, 3601, 100)
    ]


def test_slopes_leave_out_the_beginning_and_have_an_interval_over_the_runs(tmp_path: Path) -> None:
    file = tmp_path / "runs.jsonl"
    append({"memory, MB": growing(1.0)}, file)
    table = sheet(append({"memory, MB": growing(3.0)}, file))

    assert table.title == "Trends over 2 runs, 2.0 hours in all"
    assert [list(row) for row in table.rows] == [
        ["memory, MB", "99.9", "+2.0", "-10.7 .. +14.7", "+1.0, +3.0"]
    ]


def test_runs_too_short_for_a_slope_say_so(tmp_path: Path) -> None:
    (row,) = sheet(append({"memory, MB": [(0.0, 5.0)]}, tmp_path / "runs.jsonl")).rows

    assert list(row) == ["memory, MB", "5.0", "+nan", "-", "+nan"]


def test_ten_seconds_become_their_median() -> None:
    assert thinned([(0.5, 1.0), (3.0, 9.0), (9.9, 2.0), (20.0, 4.0)]) == [(0.0, 2.0), (20.0, 4.0)]
