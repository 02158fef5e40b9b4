"""The reasons for batch sizes and refusals, in words, as pure functions of an API's figures."""

from typing import Literal, assert_never

from uncork_dispatcher import Reason, ShedReason
from uncork_gateway.pages.status.figures import MANY_REQUESTS, MOSTLY, Figures
from uncork_gateway.pages.status.formatting import (
    Names,
    are,
    as_sentence,
    capitalized,
    exact_ms,
    mebibytes,
    number,
    percent,
    with_noun,
)
from uncork_gateway.pages.status.phrases import (
    cap,
    limit_rows,
    longest_wait,
    of_requests,
    queue_limits,
    rows,
    thin_traffic,
    too_much,
    workers,
)
from uncork_gateway.telemetry.recent import WINDOW_S

RefusalCause = ShedReason | Literal["no_room"]


def why_this_size(figures: Figures, names: Names) -> str:
    recent = figures.recent
    if not recent.batches:
        return f"No batch ran in the last {WINDOW_S:g} s."
    if recent.is_few:
        return "Too few requests to explain the batch size."
    size, cause = f"The mean batch has {rows(figures, recent.mean_rows)}", _cause_of_size(figures, names)
    text = f"{size}: {cause}." if cause else f"{size}."
    if not figures.merges:
        return text
    reasons = recent.counts.releases.most_common()
    if len(reasons) == 1:
        return f"{text} Reason for release: {_released(figures, names, reasons[0][0])}."
    shares = [
        f"{_released(figures, names, reason)} ({percent(recent.share_of_releases(reason))})"
        for reason, _ in reasons
    ]
    return f"{text} Reasons for release: {'; '.join(shares)}."


def _released(figures: Figures, names: Names, reason: Reason) -> str:
    match reason:
        case "full":
            size = cap(figures)
            if names.cap_bytes:
                size = f"{size} or {mebibytes(figures.stats.rules.max_batch_bytes)}"
            return f"the batch was full at {size}"
        case "deadline":
            fixed = figures.stats.rules.policy.startswith("fixed")
            goal = [] if fixed or figures.goal_s is None else ["the goal"]
            return f"its requests had waited as long as {longest_wait(figures, names, *goal)} allows"
        case "not_worth_waiting":
            return "waiting longer would not have paid off"
        case "idle":
            return f"{names.none_busy}, and waiting would not have paid off"
        case "drain":
            return "the server was shutting down"
        case _:
            assert_never(reason)


def _cause_of_size(figures: Figures, names: Names) -> str:
    """State the cause of the mean size in a clause; empty if it is unknown."""
    recent, rules = figures.recent, figures.stats.rules
    if figures.streams:
        return "requests with streamed answers run alone"
    if not figures.merges and rules.max_batch_rows == 1:
        return f"the batch cap ({names.cap}) is {limit_rows(figures, 1)}"
    if not figures.merges:
        return f"policy {rules.policy} runs each request alone"
    if recent.share_of_releases("full") >= MOSTLY:
        return "most batches are full"
    if figures.estimate is None:
        return ""
    if figures.is_thin and recent.mean_requests < MANY_REQUESTS:
        return f"{thin_traffic(figures)}, so requests rarely share a batch"
    goal_rows = figures.rows_within(figures.goal_s)
    if goal_rows < figures.cap_less_padding and recent.mean_rows > MOSTLY * goal_rows:
        return f"a batch that meets the goal has at most {rows(figures, figures.whole_rows)}"
    waiting = figures.requests_at_a_time
    if waiting >= 1 and recent.mean_requests >= MOSTLY * waiting / max(1, figures.work.workers):
        return f"the gateway has about {with_noun(number(waiting), 'request')} at a time, queued or running"
    return "that is what arrives while other batches run"


def why_refused(figures: Figures, names: Names) -> str | None:
    """Explain why requests were refused with 503, or 504 at their client's deadline; None if none was."""
    recent = figures.recent
    if not recent.refused:
        return None
    reasons: list[tuple[RefusalCause, int]] = [*recent.counts.sheds.most_common()]
    # Bodies without room are refused before they reach the dispatcher.
    if recent.refused > recent.counts.sheds.total():
        reasons.append(("no_room", recent.refused - recent.counts.sheds.total()))
        reasons.sort(key=lambda reason: -reason[1])
    refused = f"The gateway refused {of_requests(figures, recent.refused)}"
    if len(reasons) == 1:
        return f"{refused} with {_refusal(figures, names, *reasons[0])}"
    total = sum(times for _, times in reasons)
    parts = [
        f"{capitalized(percent(times / total))} of them got {_refusal(figures, names, reason, times)}"
        for reason, times in reasons
    ]
    return f"{refused}. {' '.join(parts)}"


def _refusal(figures: Figures, names: Names, reason: RefusalCause, times: int) -> str:
    """State the status of refusals and the reason, in sentences without the first words."""
    they = "it" if times == 1 else "they"
    match reason:
        case "deadline":
            goal = "its client's deadline" if times == 1 else "their clients' deadlines"
            if figures.goal_s is not None:
                goal = f"the goal of {exact_ms(figures.goal_s)}, or {goal}"
            return f"503 (deadline): {they} would have missed {goal}. {too_much(figures, names)}".strip()
        case "client_deadline":
            return f"504 (client_deadline): the time in X-Request-Timeout-Ms passed before {they} ran."
        case "queue_full":
            return f"503 (queue_full): the queue had reached {queue_limits(figures)}."
        case "no_worker":
            if not figures.work.workers:
                return f"503 (no_worker). {as_sentence(figures.not_ready_reason)}"
            now = f"{workers(figures, names)} {are(figures.work.workers)} {names.ready} now."
            return f"503 (no_worker): {names.none_ready}. {now}"
        case "no_room":
            return "503 (no_room): too many large request bodies were arriving at once."
        case "draining":
            return "503 (draining): the server is shutting down."
        case _:
            assert_never(reason)
