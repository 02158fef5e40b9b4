"""The ring buffers of the dashboard's history, held against lists that keep everything."""

from __future__ import annotations

import math

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from uncork_gateway.pages.dashboard.history import History, Point

NAMES = ("a", "b", "c")
SPAN_S, STEP_S, MOST_APIS = 20.0, 2.0, 2
POINTS = 10


def point(value: float) -> Point:
    """A point whose figures all differ from those of other values."""
    return Point(*(value + at for at in range(len(Point._fields))))


def any_history() -> History:
    return History(span_s=SPAN_S, step_s=STEP_S, most_apis=MOST_APIS)


samples = st.lists(
    st.tuples(
        st.sampled_from([2.0, 2.0, 2.0, 5.0, 30.0]),
        st.dictionaries(st.sampled_from(NAMES), st.integers(0, 99), max_size=3),
    ),
    max_size=40,
)


@given(samples, st.one_of(st.none(), st.integers(1, 12)), st.floats(0, 30))
def test_it_has_the_last_points_of_each_api(
    added: list[tuple[float, dict[str, int]]], most: int | None, later_s: float
) -> None:
    """Those of the last seconds, of the APIs that were there first, since they came last."""
    history, now = any_history(), 1000.0
    kept: dict[str, list[tuple[float, int]]] = {}
    for pause_s, values in added:
        now += pause_s
        history.add(now, {name: point(value) for name, value in values.items()})
        kept = {name: points for name, points in kept.items() if name in values}
        for name, value in values.items():
            if name in kept or len(kept) < MOST_APIS:
                kept.setdefault(name, []).append((now, value))

    found = history.columns(now + later_s, most=most)

    assert list(found) == list(kept)
    for name, points in kept.items():
        wanted = [
            (time, value)
            for time, value in points[-min(POINTS, POINTS if most is None else most) :]
            if time >= now + later_s - SPAN_S
        ]
        columns = found[name]
        assert columns["age_s"] == [round(now + later_s - time, 1) for time, _ in wanted]
        for at, field in enumerate(Point._fields):
            assert columns[field] == [pytest.approx(value + at, rel=0.005) for _, value in wanted]


def test_what_is_unknown_is_null_and_figures_are_short() -> None:
    """In JSON: three significant digits, ages in tenths of a second."""
    history = any_history()
    history.add(0.04, {"a": Point(math.nan, 12.3456, 0.000123456, 98765.4, 0, 1 / 3, 0.5, 7, 0.125)})
    document = msgspec.json.encode(history.columns(1.0))
    assert msgspec.json.decode(document) == {
        "a": {
            "age_s": [1.0],
            "p50_ms": [None],
            "p95_ms": [12.3],
            "p99_ms": [0.000123],
            "rate_rows": [98800],
            "capacity_rows": [0],
            "error_share": [0.333],
            "refused_share": [0.5],
            "queued_rows": [7],
            "padding_share": [0.125],
        }
    }


def test_a_quarter_of_an_hour_is_kept_and_takes_little_room() -> None:
    """Of 32 APIs at most; a first event with one API is about 20 kB."""
    history = History()
    apis = {f"api {number}": point(0.12345) for number in range(40)}
    for step in range(1000):
        history.add(2.0 * step, apis)
    found = history.columns(1998.0)
    assert len(found) == 32
    ages = found["api 0"]["age_s"]
    assert (ages[0], ages[-1], len(ages)) == (898.0, 0.0, 450)
    assert len(msgspec.json.encode(found["api 0"])) < 25_000
