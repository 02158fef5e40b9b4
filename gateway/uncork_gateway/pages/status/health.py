"""The state of an API and the causes of its errors, as pure functions of its figures."""

from __future__ import annotations

from uncork_gateway.pages.status.document import ApiState
from uncork_gateway.pages.status.figures import A_FEW, Figures
from uncork_gateway.pages.status.formatting import Names, count
from uncork_gateway.telemetry.recent import Recent

_HALF = 0.5


def state_of(recent: Recent) -> ApiState:
    """Return the state of an API by the share of errors and refusals among its answers."""
    share = recent.error_share + recent.refused_share
    if share >= _HALF:
        return "failing"
    return "degraded" if share > A_FEW else "ok"


def what_failed(figures: Figures, names: Names) -> str | None:
    """Describe how many requests ended in an error, and why; None if hardly any did."""
    recent = figures.recent
    if recent.error_share <= A_FEW:
        return None
    by_status = recent.counts.errors.most_common()
    why = _cause(figures, names, by_status[0][0])
    if len(by_status) > 1:
        why = ", ".join(f"{times} because {_cause(figures, names, status)}" for status, times in by_status)
    return f"{recent.failed} of {count(recent.answered, 'request')} ended in an error: {why}"


def _cause(figures: Figures, names: Names, status: int) -> str:
    """Describe why requests got an error status."""
    failure = figures.failure
    match status:
        case 500 if failure is not None:
            return f"{names.handler} raised {failure.error}{f' ({failure.place})' if failure.place else ''}"
        case 502:
            return f"{names.lost} was lost"
        case 504:
            return "a batch ran past its timeout"
        case _:
            return f"{names.handler} answered {status}"
