"""Reasons for batch sizes and refusals, as pure functions of an API's figures."""

from __future__ import annotations

from uncork_gateway.pages.status.figures import MOSTLY, Figures
from uncork_gateway.pages.status.formatting import Names, are, count, ms, number, percent, were
from uncork_gateway.pages.status.phrases import rows, thin_traffic, too_much, waiting_clients, workers

MANY_REQUESTS = 2
"""From this many requests on, a mean batch does not count as small."""


def why_this_size(figures: Figures, names: Names) -> str:
    """Explain the size of batches."""
    recent = figures.recent
    if not recent.batches:
        return "No recent batch."
    if recent.is_few:
        return "Too few requests to say."
    if not figures.merges:
        return f"{_cause_of_size(figures)}."
    mix = "; ".join(
        f"{percent(recent.share_of_releases(reason))} because {_released(figures, names, reason)}"
        for reason, _ in recent.counts.releases.most_common()
    )
    return f"{_cause_of_size(figures)}. Batches were released: {mix}."


def _released(figures: Figures, names: Names, reason: str) -> str:
    match reason:
        case "full":
            limit = rows(figures, figures.cap)
            return f"they were full ({limit}{', or their bytes' if names.cap_bytes else ''})"
        case "deadline":
            window = f" ({names.window})" if names.window else ""
            return f"a longer hold would have missed the goal, or the longest hold was reached{window}"
        case "not_worth_waiting":
            return "the next requests were not worth the wait"
        case "idle":
            return f"there was {names.free}, and a hold would have gained nothing"
        case _:
            return "the server was shutting down"


def _cause_of_size(figures: Figures) -> str:
    recent = figures.recent
    size = f"A batch has {rows(figures, recent.mean_rows)} on average"
    if figures.streams:
        return f"{size}: streamed answers are made one at a time"
    if not figures.merges:
        return f"{size}: policy {figures.stats.rules.policy} runs each request by itself"
    if recent.share_of_releases("full") >= MOSTLY:
        return f"{size}: most batches are full"
    if figures.is_closed_loop and not figures.is_overloaded:
        clients = waiting_clients(figures)
        return f"{size}: {clients}, and a batch cannot have more requests than there are clients"
    if figures.estimate is None:
        return size
    if figures.is_thin and recent.mean_requests < MANY_REQUESTS:
        return f"{size}: {thin_traffic(figures)}"
    goal_rows = figures.rows_within(figures.goal_s)
    if goal_rows < figures.cap and recent.mean_rows > MOSTLY * goal_rows:
        return f"{size}: a batch that meets the goal has at most {rows(figures, figures.whole_rows)}"
    return f"{size}: as many as gather while other batches run"


def why_refused(figures: Figures, names: Names) -> str | None:
    """Explain why requests were refused with 503, or 504 at their client's deadline; None if none was."""
    recent = figures.recent
    if not recent.refused:
        return None
    reasons = recent.counts.sheds.most_common()
    # Bodies without room are refused before they reach the dispatcher.
    if recent.refused > recent.counts.sheds.total():
        reasons.append(("no_room", recent.refused - recent.counts.sheds.total()))
    total = sum(times for _, times in reasons)
    parts = [
        f"{f'{percent(times / total)} ' if len(reasons) > 1 else ''}with {_refusal(figures, names, reason)}"
        for reason, times in reasons
    ]
    colon = ":" if len(reasons) > 1 else ""
    of_all = f"{recent.refused} of {count(recent.answered, 'request')} ({percent(recent.refused_share)})"
    return f"{of_all} {were(recent.refused)} refused{colon} {'; '.join(parts)}."


def _refusal(figures: Figures, names: Names, reason: str) -> str:
    match reason:
        case "deadline":
            goal = "their clients' deadlines"
            if figures.goal_s is not None:
                goal = f"the goal of {ms(figures.goal_s)}"
            compared = too_much(figures, names)
            because = f" ({compared})" if compared else ""
            return f"503 (deadline), because they could not have met {goal}{because}"
        case "client_deadline":
            return "504 (client_deadline), because the time in their X-Request-Timeout-Ms had passed"
        case "queue_full":
            rules = figures.stats.rules
            return (
                f"503 (queue_full), because the queue holds {rows(figures, rules.max_queue_rows)} "
                f"(--max-queue-rows) and {number(rules.max_queue_bytes / 2**20)} MiB (--max-queue-bytes)"
            )
        case "no_worker":
            now = figures.not_ready_reason
            if figures.work.workers:
                now = f"{workers(figures, names)} {are(figures.work.workers)} ready now"
            return f"503 (no_worker), because nothing was ready to run them ({now})"
        case "no_room":
            return "503, because too many large bodies were being received at once"
        case _:
            return "503 (draining), because the server is shutting down"
