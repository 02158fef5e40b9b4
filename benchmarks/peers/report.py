"""What a comparison was and found: as JSON, as a page of Markdown, and in a few lines at the end."""

import importlib.metadata
import os
import platform
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.harness.environments import Environment
from benchmarks.harness.sheets import markdown
from benchmarks.peers.catalogue import PEERS, Peer
from benchmarks.peers.contest import Outcome, Settings
from benchmarks.peers.entrants import OURS
from benchmarks.peers.tables import marks_sheet, point_sheet


@dataclass(frozen=True, kw_only=True)
class Origin:
    """Where figures come from."""

    command: str
    versions: Mapping[str, str]
    processors: int | None


@dataclass(frozen=True, kw_only=True)
class Report:
    """Everything a run was and found."""

    origin: Origin
    settings: Settings
    notes: Sequence[str]
    """What the reader must know of peers, those that were not measured included."""
    outcomes: Sequence[Outcome]


def make_report(
    outcomes: Sequence[Outcome], *, peers: Sequence[Peer], cache: Path, settings: Settings
) -> Report:
    """Put what was found together with where it comes from."""
    versions: dict[str, str] = {}
    for peer in peers:
        found = Environment(folder=cache / peer.name)
        versions |= {f"{peer.name}: {name}": v for name, v in found.versions(peer.requirements).items()}
    notes = [f"{p.name}: {p.note}" for p in PEERS.values() if p.note and (p in peers or not p.chosen)]
    if settings.connections:
        notes.append(f"Generator of the closed loop: {settings.generator}.")
    notes.append("The limit is that of the model alone, with one worker.")
    return Report(
        origin=origin("benchmarks.peers.bench", versions=versions),
        settings=settings,
        notes=notes,
        outcomes=outcomes,
    )


def origin(module: str, *, versions: Mapping[str, str]) -> Origin:
    """Say how the program `module` was called just now, on what, and beside which `versions`."""
    ours = {
        platform.python_implementation(): platform.python_version(),
        OURS: importlib.metadata.version(OURS),
    }
    return Origin(
        command=shlex.join(["python", "-m", module, *sys.argv[1:]]),
        versions={**ours, **versions},
        processors=os.cpu_count(),
    )


def origin_lines(found: Origin) -> list[str]:
    """The same as text."""
    versions = ", ".join(f"{name} {version}" for name, version in found.versions.items())
    return [f"{versions}; {found.processors} processors", f"$ {found.command}"]


def page(report: Report) -> str:
    """All tables in Markdown, what is judged first."""
    sheets = [marks_sheet(report.outcomes)]
    sheets += [point_sheet(point) for outcome in report.outcomes for point in outcome.points]
    left_out = [fault for outcome in report.outcomes for fault in outcome.left_out]
    lines = [*report.notes, *(f"Left out: {' '.join(fault.split())}" for fault in left_out)]
    return markdown_page(sheets=[*map(markdown, sheets)], notes=lines, of=report.origin)


def markdown_page(*, sheets: Sequence[str], notes: Sequence[str], of: Origin) -> str:
    """A page of tables in Markdown, with notes and where they come from."""
    versions, command = origin_lines(of)
    ending = "".join(f"* {note}\n" for note in [*notes, versions])
    return "\n".join([*sheets, f"{ending}\n    {command}\n"])
