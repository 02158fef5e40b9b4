"""Why batches are as large as they are, and why requests were refused: pure functions of an api's figures."""

from __future__ import annotations

from uncork_gateway.status.explain import MOSTLY, is_closed_loop, is_thin, load, rows, workers
from uncork_gateway.status.figures import Figures
from uncork_gateway.status.words import Names, count, ms, number, percent


def why_this_size(figures: Figures, names: Names) -> str:
    """Why batches are as large as they are."""
    if not figures.batches:
        return "No batch was released lately."
    releases = figures.recent.releases.most_common()
    mix = "; ".join(
        f"{percent(figures.share_of_releases(reason))} because {_released(figures, names, reason)}"
        for reason, _ in releases
    )
    return f"{_cause_of_size(figures, names)} Batches were released: {mix}."


def _released(figures: Figures, names: Names, reason: str) -> str:
    match reason:
        case "full":
            limit = rows(figures, figures.cap)
            return f"they were full ({limit} at most{', or their bytes' if names.cap_bytes else ''})"
        case "deadline":
            window = f" ({names.window})" if names.window else ""
            return f"waiting longer would have missed the goal, or the time to hold was over{window}"
        case "not_worth_waiting":
            return "those to come were not worth waiting for"
        case "idle":
            return f"there was {names.free}, and waiting would have gained nothing"
        case _:
            return "the server was shutting down"


def _cause_of_size(figures: Figures, names: Names) -> str:
    size = f"A batch has {rows(figures, figures.mean_rows)} on average"
    if figures.streams:
        return f"{size}: answers that are streamed are made one by one."
    if figures.stats.limit_rows == 1:
        return f"{size}: the policy {figures.stats.rules.policy} puts every request into a batch of its own."
    if figures.share_of_releases("full") >= MOSTLY:
        return f"{size}: most batches are as large as they may be."
    if is_closed_loop(figures) and not figures.is_overloaded:
        return (
            f"{size}: about {count(figures.stats.clients, 'client')} ask, and each waits for its "
            "answer before it asks again; there cannot be more requests in a batch than clients."
        )
    if is_thin(figures):
        requests = figures.rate / figures.rows_per_request
        gap = f"requests come {ms(1 / requests)} apart on average, and " if requests > 0 else ""
        alone = ms(figures.seconds(figures.rows_per_request))
        return f"{size}: {gap}one by itself takes {alone}; so small batches are right."
    if figures.goal_rows < figures.cap and figures.mean_rows > MOSTLY * figures.goal_rows:
        return f"{size}: no more than {rows(figures, figures.whole_rows)} can be done within the goal."
    return f"{size}, which is what gathers while batches run."


def why_refused(figures: Figures, names: Names) -> str | None:
    """Why requests were answered 503, or 504 where their clients had no time left; None if none was."""
    sheds = figures.recent.sheds
    told = [
        f"{count(refused, 'request')} ({percent(refused / figures.asked)}) got "
        f"{_refusal(figures, names, reason)}"
        for reason, refused in sheds.most_common()
    ]
    return f"Lately {'; '.join(told)}." if told else None


def _refusal(figures: Figures, names: Names, reason: str) -> str:
    stats, capacity = figures.stats, figures.capacity
    match reason:
        case "deadline":
            goal = (
                "the time that their clients allow"
                if figures.goal_s is None
                else f"the goal of {ms(figures.goal_s)}"
            )
            text = f"503 (deadline): they could not have been answered within {goal}"
            return f"{text}; {load(figures, names)}" if capacity else text
        case "client_deadline":
            return (
                "504 (client_deadline): the time that their clients allow in X-Request-Timeout-Ms had passed"
            )
        case "queue_full":
            rules = stats.rules
            return (
                f"503 (queue_full): the queue had no room; it holds {rows(figures, rules.max_queue_rows)} "
                f"(--max-queue-rows) and {number(rules.max_queue_bytes / 2**20)} MiB (--max-queue-bytes)"
            )
        case "no_worker":
            ready = f"{workers(figures, names)} {'is' if figures.work.workers == 1 else 'are'} ready now"
            now = ready if figures.work.workers else figures.trouble
            return f"503 (no_worker): nothing was ready to run them; {now}"
        case _:
            return "503 (draining): the server is shutting down"
