"""The report of a comparison: a page of Markdown."""

from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.harness.environments import Environment
from benchmarks.harness.paths import CACHE
from benchmarks.harness.report import Origin, markdown_page, origin
from benchmarks.harness.sheets import Sheet
from benchmarks.peers.catalogue import EMBEDDERS, PEERS, Peer
from benchmarks.peers.contest import Contest, Settings
from benchmarks.peers.tables import beside_sheet, marks_sheet, point_sheet


@dataclass(frozen=True, kw_only=True)
class Report:
    """Everything about a run."""

    origin: Origin
    settings: Settings
    notes: Sequence[str]
    """Notes on peers, including those that were not measured."""
    results: Sequence[Contest]


def make_report(results: Sequence[Contest], *, peers: Sequence[Peer], settings: Settings) -> Report:
    versions: dict[str, str] = {}
    for peer in peers:
        found = Environment(folder=CACHE / peer.name)
        versions |= {f"{peer.name}: {name}": v for name, v in found.versions(peer.requirements).items()}
    others = [] if peers[0].name in EMBEDDERS else [peer for peer in PEERS.values() if not peer.chosen]
    notes = [f"{peer.name}: {peer.note}" for peer in dict.fromkeys([*peers, *others]) if peer.note]
    if settings.connections:
        notes.append(f"Generator of the closed loop: {settings.generator}.")
    notes.append("The limit is the rate of one worker in full batches, if only the model took time.")
    found_origin = origin("scripts/bench peers", versions=versions)
    return Report(origin=found_origin, settings=settings, notes=notes, results=results)


def summary(report: Report) -> list[Sheet]:
    """Tabulate the results of all models and loads."""
    judged = any(
        each.mark.bound for result in report.results for point in result.points for each in point.verdicts
    )
    if report.settings.apart or not judged:
        return [beside_sheet(report.results, figure=figure) for figure in ("requests_per_second", "p99")]
    return [marks_sheet(report.results)]


def page(report: Report) -> str:
    """Write all tables in Markdown, the summary first."""
    sheets = summary(report)
    sheets += [point_sheet(point) for result in report.results for point in result.points]
    left_out = [fault for result in report.results for fault in result.left_out]
    lines = [*report.notes, *(f"Left out: {' '.join(fault.split())}" for fault in left_out)]
    return markdown_page(sheets, notes=lines, of=report.origin)
