"""Ratios, marks, tables and pictures of the comparison with peers."""

import io
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from benchmarks.harness.marks import at_least, at_most, ratios
from benchmarks.harness.rounds import Round
from benchmarks.harness.sheets import Sheet, markdown, show
from benchmarks.peers.contest import Point, WorkResult
from benchmarks.peers.marks import (
    BEST,
    LIMIT,
    Mark,
    best,
    closed_marks,
    open_marks,
    values,
    verdict,
)
from benchmarks.peers.model_point import ModelPoint
from benchmarks.peers.pictures import draw, draw_curve
from benchmarks.peers.tables import marks_sheet, point_sheet, verdict_line
from benchmarks.tests.peers.made_up_rounds import rounds

LIGHT, MIDDLE = ModelPoint(intercept_ms=1, slope_ms=0.02), ModelPoint(intercept_ms=5, slope_ms=0.1)
FASTER = Mark(figure="requests_per_second", rival=BEST, bound=at_least(1.2))


def rates(*found: float) -> list[Round]:
    """Rounds with these requests per second."""
    return rounds(requests_per_second=found)


def test_the_best_is_the_best_by_median() -> None:
    found: dict[str, Sequence[Round | None]] = {
        "steady": rates(100, 120, 110, 115),
        "lucky": rates(900, 10, 10, 10),
        "void": [*rates(500), None, None, None],
    }

    assert best(found, figure="requests_per_second", among=found) == "steady"
    assert best(found, figure="requests_per_second", among=["void"]) is None
    assert best({"a": rounds(p99=[2.0]), "b": rounds(p99=[3.0])}, figure="p99", among="ab") == "a"


def test_ratios_are_taken_where_both_have_a_figure() -> None:
    with_void: list[Round | None] = [*rounds(in_goal=[0.0, 0.5, None]), None]

    assert values(with_void, figure="in_goal") == [0.0, 0.5, None, None]
    assert ratios([0.0, 0.5, None, None], by=[0.5, 0.25, 1.0, 1.0]) == [0.0, 2.0]
    assert ratios([1.0], by=[0.0]) == []


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


@settings(max_examples=20)
@given(st.lists(st.floats(0.5, 2.0), min_size=5, max_size=12), st.floats(0.5, 2.0))
def test_upper_and_lower_bounds_are_opposites(found: list[float], value: float) -> None:
    states = {at_most(value).state(found), at_least(value).state(found)}

    assert states in ({"met", "missed"}, {"within the noise"}, {"met"}, {"met", "within the noise"})


def test_few_rounds_are_not_judged() -> None:
    found = {"uncork": rates(*[900] * 4), "a": rates(*[100] * 4)}

    assert verdict(FASTER, found, ours="uncork", limit=None).state == "too few rounds"


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


def test_every_point_has_a_ratio_to_the_best_peer() -> None:
    def told(marks: list[Mark]) -> list[tuple[str, str, str]]:
        return [(mark.figure, mark.rival, str(mark.bound)) for mark in marks]

    assert told(closed_marks(LIGHT, clients=64)) == [("requests_per_second", BEST, "at least 1.2")]
    assert told(closed_marks(MIDDLE, clients=1)) == [
        ("p50", "unbatched", "at most 1.05"),
        ("p50", BEST, "None"),
    ]
    assert told(closed_marks(None, clients=256)) == [("requests_per_second", BEST, "None")]
    assert told(open_marks(LIGHT)) == [("p50", BEST, "at most 0.9"), ("p99", BEST, "at most 0.9")]
    assert ("soon", BEST, "at least 1") in told(open_marks(MIDDLE))


def closed_point() -> Point:
    """A point at which Uncork is second."""
    found = {"uncork": rates(*[20000.0] * 5), "static 0 ms": rates(*[25000.0] * 5)}
    return Point(
        work="sleep",
        load="closed loop, 64 clients",
        connections=64,
        rate=None,
        limit=40000.0,
        goal_s=None,
        rounds=found,
        verdicts=[verdict(FASTER, found, ours="uncork", limit=40000.0)],
    )


def open_point() -> Point:
    """A point with a void round."""
    found: dict[str, list[Round | None]] = {
        "uncork": [*rounds(in_goal=[0.5, 0.75]), None],
        "static 0 ms": [*rounds(in_goal=[0.25, 0.25, 0.25])],
    }
    mark = Mark(figure="in_goal", rival=BEST, bound=None)
    return Point(
        work="sleep",
        load="open loop, 400/s",
        connections=None,
        rate=400.0,
        limit=None,
        goal_s=0.0102,
        rounds=found,
        verdicts=[verdict(mark, found, ours="uncork", limit=None)],
    )


def outcome() -> WorkResult:
    """Both points."""
    return WorkResult(
        work="sleep",
        points=[closed_point(), open_point()],
        commands={},
        left_out=[],
        wrong=[],
        last_words={},
    )


def test_a_point_is_shown_with_the_best_first() -> None:
    output = io.StringIO()

    show(point_sheet(closed_point()), console=Console(file=output, width=130))

    text = output.getvalue()
    assert text.index("static 0 ms") < text.index("uncork")
    assert "20,000 │       50.0 │   2.00 │   4.00 │     0.050 │   0.200" in text
    assert "requests/s, uncork / static 0 ms: 0.800 (0.800 .. 0.800); mark: at least 1.2, missed" in text


def test_an_open_point_tells_shares_and_void_rounds() -> None:
    sheet = point_sheet(open_point())
    ours = next(row for row in sheet.rows if row[0] == "uncork")

    assert sheet.title == "sleep, 1 worker, open loop, 400/s, goal 10.2 ms"
    assert ours[sheet.columns.index("in goal %")] == "62.50"
    assert ours[-1] == "2 of 3"
    assert verdict_line(open_point().verdicts[0]).endswith(
        "share within the goal, uncork / static 0 ms: 2.500 (2.000 .. 3.000); above 1 is better for uncork"
    )


def test_all_marks_stand_in_one_table() -> None:
    sheet = marks_sheet([outcome()])

    (row,) = sheet.rows
    assert row[2:] == ["requests/s / static 0 ms", "0.800 (0.800 .. 0.800)", "5", "at least 1.2", "missed"]
    assert sheet.notes[0] == "1 missed"


def test_a_sheet_can_be_put_on_a_page() -> None:
    sheet = Sheet(
        title="T", columns=["a", "b"], rows=[["x|y", "1"], ["uncork", "2"]], notes=["n"], emphasised="uncork"
    )

    assert markdown(sheet) == (
        "## T\n\n| a | b |\n| --- | ---: |\n| x\\|y | 1 |\n| **uncork** | **2** |\n\n* n\n"
    )


def test_pictures_show_every_server_once(tmp_path: Path) -> None:
    found = draw([outcome()], folder=tmp_path / "new")

    assert [file.name for file in found] == ["peers-closed.svg", "peers-open.svg"]
    for file in found:
        text = file.read_text()
        assert text.count(">static<") == text.count(">uncork<") == 1


def test_a_curve_is_drawn(tmp_path: Path) -> None:
    draw_curve([(1, 0.5), (64, 0.1)], path=tmp_path / "new" / "c.svg", title="T", labels=("workers", "cpu"))

    assert ">workers<" in (tmp_path / "new" / "c.svg").read_text()
