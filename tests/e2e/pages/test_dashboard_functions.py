"""Functions of the dashboard that need no element, in a browser."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from playwright.sync_api import Browser, expect

from tests.e2e.pages.browser import browser, needs_chromium
from tests.e2e.pages.dashboard import field, looking
from tests.e2e.server import PROBE, serving

__all__ = ["browser"]

pytestmark = [pytest.mark.slow, needs_chromium]


def services(*states: str) -> dict[str, Any]:
    named = [{"name": name, "state": state} for name, state in zip("abc", states, strict=False)]
    return {"state": "degraded", "sentence": "", "services": named}


def gpu(name: str, used: float | None) -> dict[str, Any]:
    unknown = dict.fromkeys(("memory_total_bytes", "worker_memory_bytes", "utilization"))
    return {"name": name, "memory_used_bytes": used, **unknown}


COST, ROWS = {"counts": "cost"}, {"counts": "rows"}
CALLS: list[tuple[str, str, list[Any], Any]] = [
    ("format", "number", [0], "0"),
    ("format", "number", [4.92e-80], "0"),
    ("format", "number", [0.00012], "0.00012"),
    ("format", "number", [23.456], "23"),
    ("format", "number", [12345.6], "12,000"),
    ("format", "count", [12345], "12,345"),
    ("format", "count", [2.345], "2.3"),
    ("format", "percent", [0], "0 %"),
    ("format", "percent", [0.0004], "0.04 %"),
    ("format", "percent", [0.0825], "8.3 %"),
    ("format", "percent", [0.9996], "over 99 %"),
    ("format", "percent", [1], "100 %"),
    ("format", "inUnits", [COST, 1], "1 unit of cost"),
    ("format", "inUnits", [COST, 1200], "1,200 units of cost"),
    ("format", "inUnits", [ROWS, 1], "1 row"),
    ("format", "inUnits", [ROWS, 1200], "1,200 rows"),
    ("gateway", "use", [gpu("2", 8e9)], "2: 8 GB"),
    ("gateway", "use", [gpu("MIG-8932f937-d72c-4106", None)], "MIG-8932f937: unknown"),
    # A degraded service counts as ready, as in the list of services and in /status.
    (
        "services", "summary", [services("ready", "degraded", "failing")],
        "All 3 services ready; failing: c; degraded: b.",
    ),
    (
        "services", "summary", [services("ready", "starting", "not_ready")],
        "1 of 3 services ready; not ready: c; starting: b.",
    ),
    ("services", "summary", [services("ready", "ready")], "All 2 services ready."),
]  # fmt: skip
# Labels of the time axis have room; seconds and minutes are not mixed.
TICKS = {
    (60, 640): ["now", "15 s ago", "30 s ago", "45 s ago", "60 s ago"],
    (60, 340): ["now", "30 s ago", "60 s ago"],
    (150, 400): ["now", "1 min ago", "2 min ago"],
    (300, 640): ["now", "1 min ago", "2 min ago", "3 min ago", "4 min ago", "5 min ago"],
    (900, 340): ["now", "5 min ago", "10 min ago", "15 min ago"],
}
ENDS: list[list[float | None]] = [[0.5, 0.5, 0.5, 0.5], [0, 0, 0], [10, 10, 10], [1, 9, 5], [3, None]]


def test_functions(browser: Browser) -> None:
    with serving(PROBE) as server, looking(browser, server) as page:
        # Of what no worker has, nothing is said.
        expect(field(page, "workers").locator("tr")).to_have_count(1)
        expect(field(page, "gpusHead")).to_be_hidden()

        def call(module: str, function: str, values: list[Any]) -> Any:
            return page.evaluate(
                """async ([module, name, values]) => {
                    const files = performance.getEntriesByType("resource").map((entry) => entry.name);
                    const { [name]: called } = await import(files.find((file) => file.includes(module)));
                    return called(...values);
                }""",
                [module, function, values],
            )

        assert [call(*one[:3]) for one in CALLS] == [one[3] for one in CALLS]
        ticks = {of: call("/plot.js", "timeAxis", list(of))["ticktext"] for of in TICKS}
        ends = []
        for case in ENDS:
            lines = [{"y": y, "text": str(at)} for at, y in enumerate(case)]
            ends.append(call("/plot.js", "endLabels", [lines, [0, 10], 240]))
    assert ticks == TICKS
    for case, labels in zip(ENDS, ends, strict=True):
        assert_labels_do_not_overlap(case, labels)
    # Where there is room, at the ends of the lines.
    assert sorted((label["text"], label["y"]) for label in ends[3]) == [("0", 0.1), ("1", 0.9), ("2", 0.5)]


def assert_labels_do_not_overlap(case: list[float | None], labels: list[dict[str, Any]]) -> None:
    """Each is inside the plot; a line without an end has none."""
    heights = sorted(label["y"] for label in labels)
    assert len(labels) == len([y for y in case if y is not None])
    assert heights[0] >= -1e-9
    assert heights[-1] <= 1 + 1e-9
    assert all(high - low >= 15 / 200 - 1e-9 for low, high in itertools.pairwise(heights))
