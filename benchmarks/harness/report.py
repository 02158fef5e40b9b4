"""The origin of figures, and pages of Markdown around their tables."""

import importlib.metadata
import os
import platform
import shlex
import subprocess
import sys
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from benchmarks.harness.paths import ROOT
from benchmarks.harness.sheets import Sheet, interval_text, markdown, text
from uncork_loadtests.compare import Comparison, Result

OURS = "uncork"
_WIDTH = 120


@dataclass(frozen=True, kw_only=True)
class Origin:
    """Where figures come from."""

    command: str
    commit: str
    """With ``-dirty`` if files have changed; empty outside of a git checkout."""
    versions: Mapping[str, str]
    processors: int | None


def origin(script: str, *, versions: Mapping[str, str] | None = None, packages: Sequence[str] = ()) -> Origin:
    """Describe this run: the script and its arguments, versions, and the versions of installed packages."""
    ours = {platform.python_implementation(): platform.python_version()}
    ours |= {name: importlib.metadata.version(name) for name in (OURS, *packages)}
    return Origin(
        command=shlex.join([script, *sys.argv[1:]]),
        commit=_commit(),
        versions={**ours, **(versions or {})},
        processors=os.cpu_count(),
    )


def _commit() -> str:
    command = ["git", "describe", "--always", "--abbrev=7", "--dirty"]
    try:
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


def origin_lines(found: Origin) -> list[str]:
    return [_versions(found), f"$ {found.command}"]


def _versions(found: Origin) -> str:
    commit = [f"Commit `{found.commit}`"] if found.commit else []
    versions = [f"{name} {version}" for name, version in found.versions.items()]
    return f"{', '.join([*commit, *versions])}; {found.processors} processors"


def markdown_page(sheets: Sequence[Sheet], *, notes: Sequence[str], of: Origin) -> str:
    """Write a page of tables, with notes and their origin."""
    ending = "".join(f"* {note}\n" for note in [*notes, _versions(of)])
    return "\n".join([*map(markdown, sheets), f"{ending}\n    $ {of.command}\n"])


@dataclass(frozen=True, kw_only=True)
class ResultPage:
    """A page of benchmarks/results, which a script prints as it is committed.

    Attributes:
        title: the subject.
        introduction: what is measured, with a link to the conclusions.
        script: the command without its arguments.
        packages: installed packages whose versions matter.
    """

    title: str
    introduction: str
    script: str
    packages: Sequence[str] = ()

    def beginning(self) -> str:
        """Write the part that does not depend on the run."""
        return f"# {self.title}: raw tables\n\n{_wrapped(self.introduction)}\n\n"

    def text(self, *, paragraphs: Sequence[str], sheets: Sequence[Sheet], command: str = "") -> str:
        """Write the page.

        Args:
            paragraphs: what was done in this run, wrapped anew; one that starts with ``* `` is a list.
            sheets: the tables.
            command: the command; by default the script with the arguments of this process.
        """
        found = origin(self.script, packages=self.packages)
        parts = [
            f"```sh\n{command or found.command}\n```",
            *map(_wrapped, (*paragraphs, f"{_versions(found)}.")),
            *(markdown(sheet).strip() for sheet in sheets),
        ]
        return self.beginning() + "\n\n".join(parts) + "\n"


def _wrapped(paragraph: str) -> str:
    joined = " ".join(paragraph.split())
    if not joined.startswith("* "):
        return textwrap.fill(joined, _WIDTH, break_on_hyphens=False)
    items = joined.removeprefix("* ").split(" * ")
    indented = textwrap.TextWrapper(_WIDTH, subsequent_indent="  ", break_on_hyphens=False)
    return "\n".join(indented.fill(f"* {item}") for item in items)


def policies_sheet(comparison: Comparison, *, title: str) -> Sheet:
    """Tabulate policies under one load, with the ratios of throughput and latencies to the first."""
    rounds, results = comparison.rounds, comparison.results
    notes = [
        f"{what}, {result.policy} / {results[0].policy}: {interval_text(result.ratios[name])}"
        for result in results[1:]
        for what, name in (("requests/s", "answered_per_s"), ("p50", "p50_ms"), ("p99", "p99_ms"))
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
