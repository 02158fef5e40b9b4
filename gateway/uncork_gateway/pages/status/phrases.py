"""Phrases about an API that several sentences use, as pure functions of its figures."""

from uncork_gateway.pages.status.figures import A_FEW, Figures
from uncork_gateway.pages.status.formatting import Names, count, ms, number, percent, times


def rows(figures: Figures, value: float) -> str:
    """Format rows, or units of cost."""
    return count(value, "unit of cost", "units of cost") if figures.weighs else count(value, "row")


def rate(figures: Figures, per_second: float) -> str:
    return f"{number(per_second)} {'units of cost' if figures.weighs else 'rows'}/s"


def workers(figures: Figures, names: Names) -> str:
    return count(figures.work.workers, names.worker, names.workers)


def able(figures: Figures, names: Names) -> str:
    """Describe the capacity; empty if it is unknown."""
    if figures.capacity is None:
        return ""
    least = "at least " if figures.capacity_is_least else ""
    return f"{workers(figures, names)} can answer {least}{rate(figures, figures.capacity)}"


def load(figures: Figures, names: Names) -> str:
    """Compare arrivals with the capacity; empty if either is unknown."""
    if figures.recent.is_few or figures.capacity is None:
        return ""
    arrived = f"{rate(figures, figures.recent.rate)} arrived"
    return f"{arrived}, and {able(figures, names)}{time_of_others(figures, names)}"


def too_much(figures: Figures, names: Names) -> str:
    """Explain why there were too many requests; empty if it is unknown."""
    compared = load(figures, names)
    in_bursts = figures.capacity is not None and figures.recent.rate <= figures.capacity
    if compared and in_bursts and not time_of_others(figures, names):
        return f"they came in bursts: on average {compared}"
    return compared


def time_of_others(figures: Figures, names: Names) -> str:
    """Describe the workers' time that other APIs took; empty if it is little."""
    if figures.busiest_other is None or figures.others_share < 0.1:
        return ""
    return f", but spent {percent(figures.others_share)} of the time on other {names.api}s"


def compared_with_goal(figures: Figures, names: Names) -> str:
    p99 = f"p99 was {ms(figures.recent.p99_s)}"
    if figures.goal_s is None:
        return p99
    ratio = times(figures.recent.p99_s / figures.goal_s)
    return f"{p99}, {ratio} the goal ({names.goal} {ms(figures.goal_s)})"


def waiting_clients(figures: Figures) -> str:
    return f"about {count(figures.stats.clients, 'client')} send a request each and wait for the answer"


def thin_traffic(figures: Figures) -> str:
    gap, alone = ms(figures.recent.gap_s), ms(figures.seconds(figures.recent.rows_per_request))
    return f"requests come {gap} apart on average, and one alone takes {alone}; small batches are right"


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
