"""The data of pictures, and the self-contained page."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from tests.loadtests.charts import charts
from uncork_loadtests.generator.fleet import Outcome
from uncork_loadtests.generator.samples import LOST, SAMPLE, Samples
from uncork_loadtests.reports.page import Panel, Series, looks, write_page
from uncork_loadtests.reports.panels import panels
from uncork_loadtests.targets import Estimate
from uncork_loadtests.traffic.plan import Payload, Plan

PLAN = Plan(url="http://h:1/x", payload=Payload(bodies=(b"1",)), rate=100.0, seconds=6.0, goal_s=0.02)


def samples(count: int = 600, *, seconds: float = 6.0) -> Samples:
    """Even arrivals, answered after 10 ms; every 100th after 30 ms; in batches of 5."""
    found = np.zeros(count, dtype=SAMPLE)
    due_s = np.arange(count) * seconds / count
    found["scheduled_s"] = found["fired_s"] = found["sent_s"] = due_s
    found["done_s"] = due_s + np.where(np.arange(count) % 100 == 50, 0.030, 0.010)
    found["status"] = 200
    found["batch_rows"] = 5
    found["batch_ms"] = np.repeat(np.arange(count // 5), 5) / 100 + 4
    found["queued_ms"] = 1.0
    return found


def outcome(found: Samples) -> Outcome:
    return Outcome(
        plan=PLAN,
        samples=found,
        measured_s=6.0,
        cpu_s=(0.1,),
        connections=1,
        first_wrong="",
        interrupted=False,
    )


def drawn(found: Samples, estimate: Estimate | None = None) -> dict[str, dict[str, Series]]:
    """The marks of each panel, by their names in its legend."""
    shown = panels(outcome(found), estimate)
    return {panel.title: {one.name: one for one in panel.series} for panel in shown}


def test_time_is_cut_into_stretches_of_one_length() -> None:
    found = samples()
    found["scheduled_s"][0] = -0.5
    shown = drawn(found)
    p99, offered = shown["Latency over time"]["p99"], shown["Offered and answered"]["offered"]

    assert np.diff(offered.x) == pytest.approx(0.1)
    assert [offered.x[0], offered.x[-1]] == pytest.approx([0.05, 5.95])
    assert sum(offered.y) * 0.1 == pytest.approx(599)
    assert shown["Latency over time"]["p50"].y == pytest.approx(10)
    assert np.flatnonzero(np.asarray(p99.y) > 20).tolist() == [5, 15, 25, 35, 45, 55]


def test_what_became_of_requests_adds_up_to_what_was_offered() -> None:
    found = samples()
    found["status"][:30] = np.repeat([503, 404, LOST], 10)
    shown = drawn(found)
    results = {name: np.asarray(bars.y) for name, bars in shown["Results"].items()}

    assert list(results) == ["successful (2xx)", "shed (503)", "other status", "no response"]
    assert sum(results.values()) == pytest.approx(shown["Offered and answered"]["offered"].y)
    assert list(drawn(samples())["Results"]) == ["successful (2xx)"]


def test_the_distribution_ends_where_samples_are_too_few() -> None:
    panel = panels(outcome(samples()), None)[1]
    line = panel.series[0]

    assert [line.x[0], line.x[-1]] == pytest.approx([1, 120])
    assert (np.diff(line.y) >= 0).all()
    assert [line.y[0], line.y[-1]] == pytest.approx([10, 30])
    assert panel.ticks is not None
    assert list(panel.ticks.values()) == ["0 %", "50 %", "90 %", "99 %"]


def test_long_bodies_have_a_distribution_of_their_own() -> None:
    """It is drawn only where bodies differ."""
    found = samples()
    found["body_bytes"] = np.where(np.arange(600) % 10 == 0, 500, 20)
    found["done_s"][::10] += 0.2
    shown = drawn(found)["Latency by percentile"]
    long = shown["of long bodies"]

    assert [long.x[0], long.x[-1]] == pytest.approx([1, 12])
    assert [long.y[0], long.y[-1]] == pytest.approx([210, 230])
    assert list(shown) == ["latency", "of long bodies", "goal 20 ms"]
    assert list(drawn(samples())["Latency by percentile"]) == ["latency", "goal 20 ms"]


@pytest.mark.parametrize(("counts", "lines"), [("rows", 1), ("cost", 0)])
def test_an_estimate_by_cost_is_not_drawn_over_rows(counts: str, lines: int) -> None:
    known = Estimate(intercept_ms=4.0, slope_ms=0.1, counts=counts)
    series = panels(outcome(samples()), known)[-1].series

    assert sum(one.kind == "line" for one in series) == lines


def test_a_batch_counts_once() -> None:
    *_, sizes, times = panels(outcome(samples()), None)
    [bars], [points] = sizes.series, times.series

    assert (list(bars.x), list(bars.y)) == ([5], [120])
    assert len(points.x) == 120
    assert [points.y[0], points.y[-1]] == pytest.approx([4, 5.19], rel=1e-6)


def test_of_many_points_some_are_shown() -> None:
    found = samples(50_000)
    points = drawn(found)["Latency over time"]["responses"]

    assert len(points.x) == 4000
    assert [points.x[0], points.x[-1]] == pytest.approx(found["scheduled_s"][[0, -1]])


def test_nothing_seen_makes_empty_pictures(tmp_path: Path) -> None:
    pytest.importorskip("plotly")
    lost = samples()
    lost["status"] = LOST
    path = tmp_path / "lost.html"
    write_page(path, title="lost", panels=panels(outcome(lost), None))
    found = charts(path)

    assert [len(chart.traces) for chart in found] == [0, 0, 2, 1, 0, 0]
    assert found[0].layout["annotations"][0]["text"] == "no response was successful"


@pytest.mark.parametrize(
    ("values", "low", "high"),
    [([16.0, 16.0], 8, 32), ([26.0, 97.0, np.nan, 0.0], 24.3, 103.6), ([1.0, 100.0], 0.79, 126)],
)
def test_a_logarithmic_axis_has_all_values_and_ticks(
    tmp_path: Path, values: list[float], low: float, high: float
) -> None:
    pytest.importorskip("plotly")
    series = [Series("line", list(range(len(values))), values, "red")]
    write_page(tmp_path / "a.html", title="", panels=[Panel(title="", series=series, log_up=True)])
    (chart,) = charts(tmp_path / "a.html")

    axis = chart.layout["yaxis"]
    assert [10**power for power in axis["range"]] == pytest.approx([low, high], rel=0.01)
    assert sum(low <= tick <= high for tick in axis["tickvals"]) >= 3


def test_many_names_have_looks_of_their_own() -> None:
    found = looks(str(number) for number in range(20))

    assert len(set(found.values())) == len(found) == 20


@pytest.mark.parametrize("good", [True, False])
def test_the_page_needs_nothing_else(tmp_path: Path, good: bool) -> None:
    pytest.importorskip("plotly")
    found = samples()
    if not good:
        found["status"] = 503
        found["fired_s"] += 0.5
    path = tmp_path / "page.html"
    estimate = Estimate(intercept_ms=4.0, slope_ms=0.1)
    run = outcome(found)
    write_page(path, title="<b>", panels=panels(run, estimate), text="a <script> & b", void=run.void)
    page = path.read_text()
    outside = re.sub(r"<script\b.*?</script>", "", page, flags=re.DOTALL)

    assert "a &lt;script&gt; &amp; b" in outside
    assert "<h1>&lt;b&gt;</h1>" in outside
    assert "http" not in outside
    assert re.findall(r"<(?:script|img|iframe)\b[^>]*\bsrc=\"http", page) == []
    assert outside.count('class="plotly-graph-div"') == 6
    assert ("goal 20 ms" in page) is good
    assert ("Void: the load generator fell behind" in page) is not good
