"""The origin of figures, and pages of Markdown around their tables."""

import importlib.metadata
import os
import platform
import shlex
import sys
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from benchmarks.harness.sheets import Sheet, interval_text, markdown, text
from uncork_loadtests.compare import Comparison, Result

OURS = "uncork"
_WIDTH = 120


@dataclass(frozen=True, kw_only=True)
class Origin:
    """Where figures come from."""

    command: str
    versions: Mapping[str, str]
    processors: int | None


def origin(script: str, *, versions: Mapping[str, str] | None = None, packages: Sequence[str] = ()) -> Origin:
    """Describe this run: the script and its arguments, versions, and the versions of installed packages."""
    ours = {platform.python_implementation(): platform.python_version()}
    ours |= {name: importlib.metadata.version(name) for name in (OURS, *packages)}
    return Origin(
        command=shlex.join([script, *sys.argv[1:]]),
        versions={**ours, **(versions or {})},
        processors=os.cpu_count(),
    )


def origin_lines(found: Origin) -> list[str]:
    return [_versions(found), f"$ {found.command}"]


def _versions(found: Origin) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in found.versions.items())
    return f"{versions}; {found.processors} processors"


def markdown_page(sheets: Sequence[Sheet], *, notes: Sequence[str], of: Origin) -> str:
    """Write a page of tables, with notes and their origin."""
    ending = "".join(f"* {note}\n" for note in [*notes, _versions(of)])
    return "\n".join([*map(markdown, sheets), f"{ending}\n    $ {of.command}\n"])


def result_page(
    title: str,
    *,
    script: str,
    paragraphs: Sequence[str],
    sheets: Sequence[Sheet],
    packages: Sequence[str] = (),
) -> str:
    """Write a page of docs/results: heading, command, wrapped paragraphs, tables.

    Args:
        title: the heading.
        script: the command; its arguments are those of this process.
        paragraphs: texts, wrapped anew.
        sheets: the tables.
        packages: installed packages whose versions matter.
    """
    found = origin(script, packages=packages)
    wrapped = [
        textwrap.fill(" ".join(each.split()), _WIDTH, break_on_hyphens=False)
        for each in (*paragraphs, f"{_versions(found)}.")
    ]
    command = f"```sh\n{found.command}\n```"
    return "\n\n".join([f"# {title}", command, *wrapped, *(markdown(s).strip() for s in sheets)]) + "\n"


def policies_sheet(comparison: Comparison, *, title: str) -> Sheet:
    """Tabulate policies under one load, with the ratios of throughput and p99 to the first."""
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
        # In seconds per 1000 requests, as in the other tables.
        text(medians["gateway_cpu_us"], digits=3, scale=1e-3),
        text(medians["workers_cpu_us"], digits=3, scale=1e-3),
    ]
