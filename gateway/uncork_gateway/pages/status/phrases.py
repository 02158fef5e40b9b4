"""Phrases and sentences about an API that several texts use, as pure functions of its figures."""

from uncork_gateway.pages.status.figures import A_FEW, Figures
from uncork_gateway.pages.status.formatting import (
    Names,
    as_sentence,
    count,
    exact,
    exact_ms,
    mebibytes,
    ms,
    number,
    percent,
    times,
    with_noun,
)

# A smaller share of the workers' time is not mentioned.
_SOME_TIME = 0.1


def unit(figures: Figures) -> str:
    return "unit of cost" if figures.weighs else "row"


def rows(figures: Figures, value: float) -> str:
    """Format measured rows, or units of cost."""
    return _rows(figures, number(value))


def limit_rows(figures: Figures, value: float) -> str:
    """Format a setting in rows, or units of cost."""
    return _rows(figures, exact(value))


def cap(figures: Figures) -> str:
    """Format the batch cap, which may count padding."""
    including = " including padding" if figures.cap_less_padding < figures.cap else ""
    return f"{limit_rows(figures, figures.cap)}{including}"


def _rows(figures: Figures, text: str) -> str:
    return with_noun(text, unit(figures), "units of cost" if figures.weighs else "rows")


def rate(figures: Figures, per_second: float) -> str:
    return f"{rows(figures, per_second)}/s"


def workers(figures: Figures, names: Names) -> str:
    return count(figures.work.workers, names.worker, names.workers)


def at_full_load(figures: Figures, names: Names) -> str:
    """State the capacity in a clause; empty if it is unknown."""
    if figures.capacity is None:
        return ""
    answer = "answers" if figures.work.workers == 1 else "answer"
    about = "at least" if figures.capacity_is_least else "about"
    return f"at full load, {workers(figures, names)} {answer} {about} {rate(figures, figures.capacity)}"


def load(figures: Figures, names: Names) -> str:
    """Compare arrivals with the capacity, in sentences; empty if the arrivals are unknown."""
    if figures.recent.is_few:
        return ""
    arrived, capacity = f"{rate(figures, figures.recent.rate)} arrived", at_full_load(figures, names)
    compared = f"{arrived}; {capacity}." if capacity else f"{arrived}."
    return f"{compared}{time_of_others(figures, names)}"


def too_much(figures: Figures, names: Names) -> str:
    """Explain why there were too many requests, in sentences; empty if it is unknown."""
    if figures.has_headroom and not time_of_others(figures, names) and not figures.recent.is_few:
        return f"{load(figures, names)} So the requests came in bursts."
    return load(figures, names)


def time_of_others(figures: Figures, names: Names) -> str:
    """State the time that other APIs took, as a further sentence; empty if it is little."""
    if figures.busiest_other is None or figures.others_share < _SOME_TIME:
        return ""
    return f" Other {names.apis} took {percent(figures.others_share)} of {names.time}."


def time_spent(figures: Figures) -> str:
    recent = figures.recent
    return f"On average, a request was queued for {ms(recent.queue_s)} and ran for {ms(recent.run_s)}"


def compared_with_goal(figures: Figures, names: Names) -> str:
    p99 = f"The p99 latency was {ms(figures.recent.p99_s)}"
    if figures.goal_s is None:
        return f"{p99}."
    ratio = times(figures.recent.p99_s / figures.goal_s)
    return f"{p99}, {ratio} the goal ({names.goal}, {exact_ms(figures.goal_s)})."


def queue_limits(figures: Figures) -> str:
    rules = figures.stats.rules
    size = mebibytes(rules.max_queue_bytes)
    return f"--max-queue-rows ({exact(rules.max_queue_rows)}) or --max-queue-bytes ({size})"


def longest_wait(figures: Figures, names: Names, *others: str) -> str:
    """Name what limits how long requests may be held, after ``others``."""
    policy = figures.stats.rules.policy
    limits = [*others, f"policy {policy}" if policy.startswith("fixed") else None, names.window]
    return " or ".join(filter(None, limits)) or f"policy {policy}"


def thin_traffic(figures: Figures) -> str:
    gap, alone = ms(figures.recent.gap_s), ms(figures.alone_s(figures.recent.rows_per_request))
    return f"requests arrive {gap} apart on average, and one alone takes about {alone}"


def of_requests(figures: Figures, number_of: int) -> str:
    """State how many of the recent requests something happened to."""
    recent = figures.recent
    if number_of < recent.requests:
        share = percent(number_of / recent.answered)
        return f"{exact(number_of)} of {count(recent.answered, 'request')} ({share})"
    if number_of <= 2:
        return "both requests" if number_of == 2 else "the only request"
    return f"all {count(number_of, 'request')}"


def what_failed(figures: Figures, names: Names) -> str | None:
    """State how many requests failed, and why; None if hardly any did."""
    recent = figures.recent
    if recent.error_share <= A_FEW:
        return None
    by_status = recent.counts.errors.most_common()
    why = _cause(figures, names, by_status[0][0])
    if len(by_status) > 1:
        causes = [f"{exact(many)} because {_cause(figures, names, status)}" for status, many in by_status]
        why = f"{', '.join(causes[:-1])} and {causes[-1]}"
    return as_sentence(f"{of_requests(figures, recent.failed)} failed: {why}")


def _cause(figures: Figures, names: Names, status: int) -> str:
    failure = figures.failure
    match status:
        case 500 if failure is not None:
            place = f" ({failure.place})" if failure.place else ""
            return f"{names.handler} raised {failure.error}{place}"
        case 502:
            return names.lost
        case 504:
            return "the batch exceeded its timeout"
        case _:
            return f"{names.handler} returned {status}"
