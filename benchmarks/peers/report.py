"""The report of a comparison: a page of Markdown."""

from collections.abc import Sequence

from benchmarks.harness.environments import Environment
from benchmarks.harness.paths import CACHE
from benchmarks.harness.report import Origin, markdown_page, origin
from benchmarks.harness.sheets import Sheet
from benchmarks.peers.catalogue import EMBEDDERS, PEERS, Peer
from benchmarks.peers.contest import Contest, Settings
from benchmarks.peers.tables import beside_sheet, marks_sheet, point_sheet


def origin_of(peers: Sequence[Peer]) -> Origin:
    """Describe this run, with the versions of the peers."""
    versions: dict[str, str] = {}
    for peer in peers:
        found = Environment(folder=CACHE / peer.name)
        versions |= {f"{peer.name}: {name}": v for name, v in found.versions(peer.requirements).items()}
    return origin("scripts/bench peers", versions=versions)


def notes_on(peers: Sequence[Peer], settings: Settings) -> list[str]:
    """Return notes on the peers, including those that were not measured, and on the load."""
    others = [] if peers[0].name in EMBEDDERS else [peer for peer in PEERS.values() if not peer.chosen]
    notes = [f"{peer.name}: {peer.note}" for peer in dict.fromkeys([*peers, *others]) if peer.note]
    if settings.connections:
        notes.append(f"Generator of the closed loop: {settings.generator}.")
    return [*notes, "The limit is the rate of one worker in full batches, if only the model took time."]


def summary(results: Sequence[Contest], *, apart: bool) -> list[Sheet]:
    """Tabulate the results of all models and loads."""
    judged = any(each.mark.bound for result in results for point in result.points for each in point.verdicts)
    if apart or not judged:
        return [beside_sheet(results, figure=figure) for figure in ("requests_per_second", "p99")]
    return [marks_sheet(results)]


def page(sheets: Sequence[Sheet], results: Sequence[Contest], *, notes: Sequence[str], of: Origin) -> str:
    """Write all tables in Markdown, the summary first."""
    points = [point_sheet(point) for result in results for point in result.points]
    left_out = [fault for result in results for fault in result.left_out]
    lines = [*notes, *(f"Left out: {' '.join(fault.split())}" for fault in left_out)]
    return markdown_page([*sheets, *points], notes=lines, of=of)
