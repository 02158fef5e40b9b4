"""A section of docs/benchmarks.md, as a bench prints it: its command, what was measured, the tables."""

import importlib.metadata
import shlex
import sys
import textwrap
from collections.abc import Sequence

from benchmarks.harness.sheets import Sheet, markdown, text
from benchmarks.peers.report import origin, origin_lines
from benchmarks.peers.tables import interval_text
from uncork_loadtests.compare import Comparison, Result

_WIDTH = 120


def section(
    title: str,
    *,
    script: str,
    paragraphs: Sequence[str],
    sheets: Sequence[Sheet],
    packages: Sequence[str] = (),
) -> str:
    """Markdown with a heading of the second level; the tables have headings of the third.

    Args:
        title: the heading.
        script: what was called; the arguments are those of this process.
        paragraphs: broken into lines anywhere; they are wrapped.
        sheets: the tables.
        packages: installed ones whose versions matter.
    """
    found = {name: importlib.metadata.version(name) for name in packages}
    versions, _ = origin_lines(origin(script, versions=found))
    command = shlex.join([script, *sys.argv[1:]])
    wrapped = [
        textwrap.fill(" ".join(each.split()), _WIDTH, break_on_hyphens=False)
        for each in (*paragraphs, f"{versions}.")
    ]
    parts = [
        f"## {title}",
        f"```sh\n{command}\n```",
        *wrapped,
        *(markdown(sheet).strip() for sheet in sheets),
    ]
    return "\n\n".join(parts) + "\n"


def policies_sheet(comparison: Comparison, *, title: str) -> Sheet:
    """Policies under one load, with the ratios of throughput and p99 to the first of them."""
    rounds, results = comparison.rounds, comparison.results
    notes = [
        f"{what}, {result.policy} / {results[0].policy}: {interval_text(result.ratios[name])}"
        for result in results[1:]
        for what, name in (("requests/s", "answered_per_s"), ("p99", "p99_ms"))
    ]
    notes += [f"round {one.number + 1} left out: {one.policy}: {one.reason}" for one in rounds.left_out]
    return Sheet(
        title=title,
        columns=["policy", "req/s", "p50 ms", "p99 ms", "rows/batch", "gateway cpu", "workers cpu", "rounds"],
        rows=[[*_cells(result), str(len(rounds.whole))] for result in results],
        notes=notes,
    )


def _cells(result: Result) -> list[str]:
    medians = result.medians
    return [
        result.policy,
        text(medians["answered_per_s"], digits=0),
        text(medians["p50_ms"], digits=1),
        text(medians["p99_ms"], digits=1),
        text(medians["batch_rows"], digits=1),
        # Seconds for 1000 requests, as elsewhere on that page.
        text(medians["gateway_cpu_us"], digits=3, scale=1e-3),
        text(medians["workers_cpu_us"], digits=3, scale=1e-3),
    ]
