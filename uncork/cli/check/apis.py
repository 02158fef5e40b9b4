"""Findings of one API: its goal, cap, timeout and queues, compared with each other and with measurements."""

import math

from uncork.cli.check.figures import ApiFigures, Failure, Findings, Plan, Times, error, note, warning
from uncork_dispatcher import make_policy
from uncork_dispatcher.learning.line import rows_within
from uncork_dispatcher.plural import plural

# The least gain from merging that is worth its waiting.
_LITTLE_GAIN = 1.2


def judge_api(api: ApiFigures, plan: Plan) -> Findings:
    """Yield the findings of one API, without its name."""
    yield from _unmeasured(api)
    yield from _clients(api, plan)
    yield from _sizes(api)
    yield from _bytes(api, plan)
    yield from _queues(api, plan)
    yield from _timeout(api)
    if api.times is not None:
        yield from _goal(api, api.times)
        yield from _gain(api, api.times)
    yield from _drain(api, plan)


def _unmeasured(api: ApiFigures) -> Findings:
    if api.failure is not None:
        where, advice = _failed_on(api, api.failure)
        yield error("handler-fails", f"{where} the handler {api.failure.says}", advice)
    elif api.timed_out:
        yield error(
            "row-beyond-timeout",
            f"the smallest batch did not finish within timeout={api.settings.timeout:g} s",
            "raise timeout, or make the model faster",
        )
    elif api.unmeasured:
        yield note(
            "not-measured",
            f"batch times were not measured: {api.unmeasured}",
            "set a working example with @api(warmup=...)",
        )


def _failed_on(api: ApiFigures, failure: Failure) -> tuple[str, str]:
    """Return the input on which a handler failed, and advice."""
    if failure.rows > 1:
        return (
            f"with a batch of {failure.rows} rows, but not with fewer,",
            "fix the handler: it receives all rows of a batch at once, and must return one result per row",
        )
    if api.row_is_made_up:
        return (
            "with a row generated from the schema,",
            "fix the handler; if clients never send such a row, narrow the input schema, or set an example "
            "with @api(warmup=...)",
        )
    return "with its own example,", "fix the handler, or set a working example with @api(warmup=...)"


def _clients(api: ApiFigures, plan: Plan) -> Findings:
    goal, client_ms = api.settings.mb_max_latency, plan.client_timeout_ms
    if client_ms is not None and client_ms < goal and not api.streams:
        yield error(
            "client-below-goal",
            f"clients give up after {client_ms:g} ms, before the goal of {goal:g} ms",
            f"set mb_max_latency below {client_ms:g}, or raise the timeout of the clients",
        )


def _sizes(api: ApiFigures) -> Findings:
    settings, cap = api.settings, api.settings.mb_max_batch_size
    # The rows of a cost have no limit but the largest size.
    sizes = settings.allowed_batch_sizes or () if settings.cost is None else ()
    used = next((size for size in sizes if size >= cap), math.inf)
    useless = [str(size) for size in sizes if size > used]
    if useless:
        yield warning(
            "sizes-beyond-cap",
            f"mb_max_batch_size is {cap}: the sizes {', '.join(useless)} in allowed_batch_sizes are never "
            "used",
            f"raise mb_max_batch_size to {sizes[-1]}, or remove these sizes",
        )
    lengths = settings.allowed_lengths or ()
    if lengths and lengths[-1] > cap:
        alone = [f"{length:g}" for length in lengths if length > cap]
        yield warning(
            "lengths-beyond-cap",
            f"mb_max_batch_size is {cap}: rows of the lengths {', '.join(alone)} in allowed_lengths never "
            "share a batch",
            f"set mb_max_batch_size to {lengths[-1]:g} times the number of such rows in a full batch",
        )


def _bytes(api: ApiFigures, plan: Plan) -> Findings:
    most = api.settings.mb_max_batch_bytes
    row_bytes = None if api.times is None else api.times.row_bytes
    if row_bytes is not None and 2 * row_bytes > most and not api.is_single:
        yield warning(
            "row-above-batch-bytes",
            f"a row has {plural(row_bytes, 'byte')}: no two rows fit into mb_max_batch_bytes={most}",
            f"set mb_max_batch_bytes to {row_bytes * api.settings.limit_rows} for full batches",
        )
    elif plan.max_body_bytes > most and not api.is_single:
        yield note(
            "body-above-batch-bytes",
            f"a request may have {plural(plan.max_body_bytes, 'byte')}, but a batch of several only {most}",
            "larger requests run alone; no action is needed if they are rare",
        )


def _queues(api: ApiFigures, plan: Plan) -> Findings:
    settings = api.settings
    if api.is_single:
        return
    if settings.cost is None and plan.max_queue_rows < settings.limit_rows:
        yield warning(
            "queue-below-batch",
            f"the queue is limited to {plural(plan.max_queue_rows, 'row')}, but a batch may have "
            f"{settings.limit_rows}",
            f"set --max-queue-rows to {20 * settings.limit_rows}, or lower mb_max_batch_size",
        )
    if plan.max_queue_bytes < settings.mb_max_batch_bytes:
        yield warning(
            "queue-below-batch",
            f"the queue is limited to {plural(plan.max_queue_bytes, 'byte')}, but a batch may have "
            f"{settings.mb_max_batch_bytes}",
            "raise --max-queue-bytes, or lower mb_max_batch_bytes",
        )


def _timeout(api: ApiFigures) -> Findings:
    timeout_ms, goal = api.settings.timeout * 1000, api.settings.mb_max_latency
    if timeout_ms < goal and not api.streams:
        yield error(
            "timeout-below-goal",
            f"a batch is aborted after timeout={timeout_ms / 1000:g} s, before the goal of {goal:g} ms",
            f"set timeout to {math.ceil(goal / 100) / 2:g} s, five times the goal",
        )
    if api.times is None:
        return
    full_ms = api.times.batch_ms(api.settings.limit_rows)
    if api.times.smallest_ms <= timeout_ms < full_ms and not _keeps_goal(api) and not api.is_single:
        fitting = _within(api.times, timeout_ms, api)
        yield warning(
            "timeout-below-batch",
            f"a full batch of {api.settings.limit_rows} {api.unit} takes {_ms(full_ms)}, "
            f"but timeout is {timeout_ms / 1000:g} s: the batch would be aborted and its worker replaced",
            f"set timeout to {math.ceil(3 * full_ms / 1000):g} s, or mb_max_batch_size to {fitting}",
        )


def _goal(api: ApiFigures, times: Times) -> Findings:
    goal, cap = api.settings.mb_max_latency, api.settings.limit_rows
    least = times.smallest_ms
    if least > goal:
        yield error(
            "goal-below-row",
            f"the smallest batch takes {_ms(least)}, but the goal is {goal:g} ms: every response is late",
            f"set mb_max_latency to {math.ceil(3 * least):g}, or make the model faster",
        )
        return
    full_ms = times.batch_ms(cap)
    if full_ms > goal and not api.is_single:
        fitting = _within(times, goal, api)
        wrong = (
            f"a full batch of {cap} {api.unit} takes {_ms(full_ms)}, but only {fitting} fit within the "
            f"goal of {goal:g} ms"
        )
        if _keeps_goal(api):
            advice = f"the cap is never reached; set mb_max_batch_size to {fitting}, or raise the goal"
            yield note("goal-below-batch", wrong, advice)
        else:
            yield warning(
                "goal-below-batch",
                f"{wrong}, and policy {api.settings.policy} ignores the goal",
                f"set mb_max_batch_size to {fitting}, use policy cork, or raise the goal",
            )


def _gain(api: ApiFigures, times: Times) -> Findings:
    """Judge the gain from merging by the largest measured batch."""
    first, last = times.sizes[0], times.sizes[-1]
    if api.streams or last.rows == first.rows:
        return
    gain = (first.median_ms / first.rows) / max(last.median_ms / last.rows, 1e-9)
    if api.is_single:
        if gain > 2:
            yield warning(
                "policy-none",
                f"policy is none, but batches of {last.rows} have {gain:.3g} times the throughput of "
                "single rows",
                "remove the setting, so that requests are batched",
            )
    elif gain < _LITTLE_GAIN:
        yield note(
            "little-gain",
            f"batches of {last.rows} have only {gain:.3g} times the throughput of single rows",
            "process all rows at once in the handler (arrays, not a loop), or add workers",
        )
    yield from _steps(api, times)


def _steps(api: ApiFigures, times: Times) -> Findings:
    """Judge jumps of the batch time, unless the API has a cost.

    A batch of that cost may then have any number of rows, so the jump is no size that could be set.
    """
    if api.settings.cost is not None:
        return
    for rows in times.line.steps:
        yield note(
            "step",
            f"batch time jumps above {rows} rows, as with models that are compiled for certain sizes",
            "list the batch sizes that the model is built for in allowed_batch_sizes",
        )


def _drain(api: ApiFigures, plan: Plan) -> Findings:
    goal_ms, drain_ms = api.settings.mb_max_latency, plan.drain_timeout_s * 1000
    longest_ms = goal_ms
    if api.times is not None and not (_keeps_goal(api) or api.is_single):
        full_ms = api.times.batch_ms(api.settings.limit_rows)
        longest_ms = max(goal_ms, min(full_ms, api.settings.timeout * 1000))
    if drain_ms < longest_ms and not api.streams:
        yield warning(
            "drain-below-goal",
            f"shutdown waits {drain_ms / 1000:g} s, but requests may take {_ms(longest_ms)}: some get 503",
            f"set --drain-timeout to {math.ceil(2 * longest_ms / 1000)}",
        )


def _keeps_goal(api: ApiFigures) -> bool:
    return make_policy(api.settings.policy, limit_rows=1).keeps_goal


def _within(times: Times, limit_ms: float, api: ApiFigures) -> int:
    """Return the largest batch, at least 1, that ends in time, given that a full one does not."""
    line, most = times.line, api.settings.limit_rows - 1
    left_s = (limit_ms - times.overhead_ms) / 1000
    fitting = rows_within(left_s, intercept_s=line.intercept_ms / 1000, slope_s=line.slope_ms / 1000)
    return int(max(1, min(fitting, most)))


def _ms(value: float) -> str:
    return f"{value / 1000:.3g} s" if value >= 1000 else f"{value:.3g} ms"
