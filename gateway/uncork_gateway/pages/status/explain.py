"""Sentences that explain what an API does, as pure functions of its figures."""

from typing import Literal, assert_never

from uncork_dispatcher import Estimate, HoldReason, Reason, ShedReason
from uncork_gateway.pages.status.figures import A_FEW, MANY_REQUESTS, MOSTLY, Figures
from uncork_gateway.pages.status.formatting import Names, are, count, ms, number, percent, plus_minus, were
from uncork_gateway.pages.status.phrases import (
    able,
    rate,
    rows,
    thin_traffic,
    time_of_others,
    too_much,
    waiting_clients,
    what_failed,
    workers,
)
from uncork_gateway.telemetry.recent import ENOUGH_REQUESTS, WINDOW_S

# A balance of fewer rows is not worth mentioning.
_SOME_ROWS = 2
# A smaller part of a batch's time is left out of the sentence.
_NEGLIGIBLE = 0.02


def waits_for(figures: Figures, names: Names) -> str:
    stats, work = figures.stats, figures.work
    if not stats.queued_requests:
        return "nothing is queued"
    if not work.workers:
        return f"{names.free}: {figures.not_ready_reason}"
    if not work.idle:
        return f"{names.free}: {_busy(figures, names)}; {_next_free(figures)}"
    if figures.draining or stats.holding is None:
        return "nothing: the queue is being released"
    longest = f"for at most {ms(max(0.0, stats.holding.seconds))}"
    return _HOLDS[stats.holding.reason].format(time=longest)


_HOLDS: dict[HoldReason, str] = {
    "balance": "the moment that keeps its batches as large as those of the busy workers, {time}",
    "returns": "the next requests of clients that were just answered, {time}",
    "goal": "more requests, until the last moment that meets the goal, {time}",
    "next": "one more request, {time}",
    "window": "the end of its window, {time}",
    "quarantine": "a request that runs alone, because its worker was lost before",
}


def _busy(figures: Figures, names: Names) -> str:
    total, running = figures.work.workers, {batch.api for batch in figures.work.running}
    busy = names.one_busy if total == 1 else names.all_busy.format(n=total)
    others = ", ".join(sorted(running - {figures.stats.name}))
    some = "" if running == {others} else "some "
    return f"{busy}{f', {some}with {others}' if others else ''}"


def _next_free(figures: Figures) -> str:
    left_s = figures.next_free_s
    which = "it" if figures.work.workers == 1 else "the first"
    if left_s >= 0:
        return f"{which} should be done in {ms(left_s)}"
    return f"{which} should have been done {ms(-left_s)} ago"


def sentence(figures: Figures, names: Names) -> str:
    """Describe an API in its window: errors, traffic, where time goes, batch times, limits."""
    failed = what_failed(figures, names)
    parts = [
        f"{failed}." if failed else "",
        _refused(figures),
        _traffic(figures),
        _where_time_goes(figures),
        _batch_time(figures, names),
        _limit(figures, names),
    ]
    return " ".join(filter(None, parts))


def _refused(figures: Figures) -> str:
    recent = figures.recent
    if recent.refused_share <= A_FEW:
        return ""
    return f"{recent.refused} of {count(recent.answered, 'request')} {were(recent.refused)} refused."


def _traffic(figures: Figures) -> str:
    recent = figures.recent
    if not recent.requests:
        running = sum(batch.requests for batch in figures.work.running if batch.api == figures.stats.name)
        waiting = figures.stats.queued_requests + running
        if waiting:
            now = f"{count(waiting, 'request')} {are(waiting)} queued or running"
            return f"No answer in the last {WINDOW_S:g} s: {now}."
        return f"No request in the last {WINDOW_S:g} s."
    if recent.is_few:
        too_few = "too few" if recent.requests < ENOUGH_REQUESTS else "too early"
        return f"{count(recent.requests, 'request')} in the last {_window(figures)}: {too_few} to say more."
    rejected = ""
    if recent.client_errors > A_FEW * recent.requests:
        rejected = f" {recent.client_errors} of {count(recent.requests, 'request')} got a 4xx."
    batches = ""
    if recent.batches and figures.merges:
        requests = f" ({count(recent.mean_requests, 'request')})"
        same = recent.mean_rows == recent.mean_requests and not figures.weighs
        batches = f", in batches of {rows(figures, recent.mean_rows)}{'' if same else requests} on average"
    return f"In the last {_window(figures)}, {rate(figures, recent.rate)} arrived{batches}.{rejected}"


def _window(figures: Figures) -> str:
    seconds = figures.recent.seconds
    return f"{seconds:.0f} s" if seconds >= 1 else "second"


def _where_time_goes(figures: Figures) -> str:
    recent = figures.recent
    if recent.is_few or recent.requests == recent.failed + recent.refused:
        return ""
    goal = "" if figures.goal_s is None else f" (goal {ms(figures.goal_s)})"
    p99 = f"p99 latency was {ms(recent.p99_s)}{goal}."
    if not recent.counts.ran:
        return f"The {p99}"
    return f"A request spent {ms(recent.queue_s)} queued and {ms(recent.run_s)} in its batch; {p99}"


def _batch_time(figures: Figures, names: Names) -> str:
    estimate, known = figures.estimate, figures.stats.known_rows
    if estimate is None or known is None or estimate.seconds(known[1]) <= 0:
        return "Too few batches have succeeded to say how long one takes."
    return f"{_line(figures, estimate, known)}{_balance(figures, names)}."


def _line(figures: Figures, estimate: Estimate, known: tuple[float, float]) -> str:
    """Describe the estimate without parts that are unknown, or negligible for the sizes seen."""
    scatter, unit = plus_minus(estimate.spread), "unit of cost" if figures.weighs else "row"
    if known[0] == known[1]:
        size = rows(figures, known[0])
        return f"A batch of {size} takes {ms(estimate.seconds(known[0]))} ({scatter}); no other size was seen"
    longest_s = estimate.seconds(known[1])
    if estimate.slope_s * (known[1] - known[0]) < _NEGLIGIBLE * longest_s:
        return f"A batch takes {ms(longest_s)} ({scatter}), whatever its size"
    if estimate.intercept_s < _NEGLIGIBLE * longest_s:
        return f"A batch takes {ms(estimate.slope_s)} per {unit} ({scatter})"
    return f"A batch takes {ms(estimate.intercept_s)} plus {ms(estimate.slope_s)} per {unit} ({scatter})"


def _balance(figures: Figures, names: Names) -> str:
    balanced = figures.balanced_rows
    if balanced is None or balanced < _SOME_ROWS:
        return ""
    keep = "keeps" if figures.work.workers == 1 else "keep"
    return f"; with {rows(figures, balanced)} in each, {workers(figures, names)} {keep} up"


def _limit(figures: Figures, names: Names) -> str:
    limit, can = figures.limited_by, able(figures, names)
    if not figures.work.workers:
        return f"Nothing can be answered: {figures.not_ready_reason}."
    so = f", so {can}" if can else ""
    match limit:
        case "nothing":
            if figures.recent.is_few or figures.state != "ok":
                return f"{can}." if can else ""
            return f"Nothing limits it{f': {can}' if can else ''}."
        case "goal" if figures.is_out_of_reach:
            return f"The goal limits it: the smallest request alone takes {ms(figures.needed_s)}."
        case "goal":
            fit = rows(figures, figures.whole_rows)
            return f"The goal limits it: a batch that meets it has at most {fit}{so}."
        case "cap":
            return f"The batch cap limits it: a batch has at most {rows(figures, figures.whole_rows)}{so}."
        case "workers":
            can = can or f"{workers(figures, names)} cannot answer more"
            return f"The {names.workers} limit it: {can}{time_of_others(figures, names)}."


def why_this_size(figures: Figures, names: Names) -> str:
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


def _released(figures: Figures, names: Names, reason: Reason) -> str:
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
        case "drain":
            return "the server was shutting down"
        case _:
            assert_never(reason)


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
    reasons: list[tuple[ShedReason | Literal["no_room"], int]] = [*recent.counts.sheds.most_common()]
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


def _refusal(figures: Figures, names: Names, reason: ShedReason | Literal["no_room"]) -> str:
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
        case "draining":
            return "503 (draining), because the server is shutting down"
        case _:
            assert_never(reason)
