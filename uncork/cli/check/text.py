"""Findings as text and as JSON."""

from collections.abc import Iterator, Sequence

from rich.console import RenderableType
from rich.text import Text

from uncork.cli.check.figures import ApiFigures, Figures, Finding
from uncork.cli.terminal import NOTHING, as_document, plain_table
from uncork_dispatcher.plural import plural

_STYLES = {"error": "bold red", "warning": "yellow", "note": "cyan"}


def text(figures: Figures, findings: Sequence[Finding]) -> Iterator[RenderableType]:
    """Yield the parts to print, one below the other."""
    table = plain_table("API", "smallest ms", "largest measured", "ms", "full batch", "ms", "MiB/row")
    for api in figures.apis:
        table.add_row(api.name, *_cells(api))
    yield table
    for finding in findings:
        yield ""
        about = f"{finding.api}: " if finding.api else ""
        yield Text.assemble((finding.severity, _STYLES[finding.severity]), f" {about}{finding.wrong}")
        yield f"  {finding.advice} [{finding.code}]"
    yield ""
    yield _summary(figures.service, findings)


def as_json(figures: Figures, findings: Sequence[Finding]) -> bytes:
    """Encode the findings, and the figures behind them."""
    found = {"service": figures.service, "findings": findings, "plan": figures.plan, "apis": figures.apis}
    return as_document(found)


def _cells(api: ApiFigures) -> list[str]:
    times = api.times
    if times is None:
        return [NOTHING] * 6
    last, cap = times.sizes[-1], api.settings.limit_rows
    memory = times.memory_per_row_bytes
    return [
        f"{times.smallest_ms:.2f}",
        str(last.rows),
        f"{times.batch_ms(last.rows):.2f}",
        str(cap),
        f"{'' if cap <= last.rows else 'about '}{times.batch_ms(cap):.2f}",
        NOTHING if memory is None else f"{memory / 2**20:.3g}",
    ]


def _summary(service: str, findings: Sequence[Finding]) -> str:
    if not findings:
        return f"{service}: no problems found"
    counts = {severity: sum(one.severity == severity for one in findings) for severity in _STYLES}
    return f"{service}: " + ", ".join(plural(count, severity) for severity, count in counts.items() if count)
