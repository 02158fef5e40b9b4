"""Findings as text and as JSON."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.console import RenderableType
from rich.text import Text

from uncork.cli.check.differences import FLOATS
from uncork.cli.check.figures import ApiFigures, Figures, Finding
from uncork.cli.check.resources import Needs, needs_of
from uncork.cli.terminal import NOTHING, as_document, plain_table
from uncork.server.services import ONLY
from uncork_dispatcher.wording import mebibytes, plural

_STYLES = {"error": "bold red", "warning": "yellow", "note": "cyan"}


def text(services: Mapping[str, Figures], findings: Sequence[Finding]) -> Iterator[RenderableType]:
    if ONLY in services:
        yield from _of_service(services[ONLY].service, services[ONLY], findings)
        return
    for name, figures in services.items():
        yield Text(f"service {name}", "bold")
        yield from _of_service(name, figures, _about(name, findings))
        yield ""
    needs = needs_of({name: figures.plan for name, figures in services.items()})
    if needs.workers:
        yield _needs(needs)
    yield from _findings(_about("", findings))
    yield _summary(plural(len(services), "service"), findings)


def as_json(services: Mapping[str, Figures], findings: Sequence[Finding]) -> bytes:
    """Encode the findings, and the figures behind them."""
    if ONLY in services:
        return as_document(_document(services[ONLY], findings))
    each = {name: _document(figures, _about(name, findings)) for name, figures in services.items()}
    needs = needs_of({name: figures.plan for name, figures in services.items()})
    return as_document({"services": each, "findings": _listed(_about("", findings)), "needs": needs})


def _of_service(name: str, figures: Figures, findings: Sequence[Finding]) -> Iterator[RenderableType]:
    yield _apis(figures)
    yield from _safe(figures)
    yield from _findings(findings)
    yield _summary(name, findings)


def _about(service: str, findings: Sequence[Finding]) -> list[Finding]:
    return [one for one in findings if one.service == service]


def _document(figures: Figures, findings: Sequence[Finding]) -> dict[str, Any]:
    return {
        "service": figures.service,
        "findings": _listed(findings),
        "plan": figures.plan,
        "apis": figures.apis,
    }


def _listed(findings: Sequence[Finding]) -> list[dict[str, str]]:
    return [
        {
            "severity": severity,
            "code": advice.code,
            "wrong": advice.wrong,
            "advice": advice.remedy,
            "api": api,
        }
        for severity, advice, api, _ in findings
    ]


def _apis(figures: Figures) -> RenderableType:
    table = plain_table("API", "smallest ms", "largest measured", "ms", "full batch", "ms", "MiB/row")
    for api in figures.apis:
        table.add_row(api.name, *_cells(api))
    return table


def _safe(figures: Figures) -> Iterator[str]:
    """Name the APIs whose results did not depend on the batch."""
    names = [api.name for api in figures.apis if api.comparison is not None and not api.comparison.key]
    if names:
        yield f"same results alone and in a batch, within {FLOATS}: {', '.join(names)}"


def _findings(findings: Sequence[Finding]) -> Iterator[RenderableType]:
    for severity, advice, api, _ in findings:
        yield ""
        about = f"{api}: " if api else ""
        yield Text.assemble((severity, _STYLES[severity]), f" {about}{advice.wrong}")
        yield f"  {advice.remedy} [{advice.code}]"
    yield ""


def _needs(needs: Needs) -> str:
    """Describe what all services need together."""
    needed = [f"{plural(needs.workers, 'worker')} on {plural(needs.cores, 'core')}"]
    if needs.gpus:
        needed.append(f"{plural(len(needs.gpus), 'GPU')} ({', '.join(needs.gpus)})")
    if needs.worker_bytes is not None and needs.free_bytes is not None:
        used, free = mebibytes(needs.worker_bytes), mebibytes(needs.free_bytes)
        needed.append(f"{used} of {free} of free memory before the first batch")
    return f"all services together: {', '.join(needed)}"


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


def _summary(what: str, findings: Sequence[Finding]) -> str:
    if not findings:
        return f"{what}: no problems found"
    counts = {severity: sum(one.severity == severity for one in findings) for severity in _STYLES}
    return f"{what}: " + ", ".join(plural(count, severity) for severity, count in counts.items() if count)
