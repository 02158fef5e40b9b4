"""Findings of one API: its goal, cap, timeout and queues, compared with each other and with measurements."""

import math

from uncork.cli.check.figures import ApiFigures, Findings, Plan, Times, error, note, warning
from uncork_dispatcher import make_policy
from uncork_dispatcher.advice import WORTH
from uncork_dispatcher.learning.estimator import Estimate
from uncork_workers.process.stages import PAYS

# From this gain on, running each request alone is a mistake.
_MUCH = 2
# From this multiple of the tolerance on, a difference is more than rounding, even of a quantized model.
_LEAK = 50


def judge_api(api: ApiFigures, plan: Plan) -> Findings:
    """Yield the findings of one API, without its name."""
    yield from _unmeasured(api)
    yield from _compared(api)
    yield from _clients(api, plan)
    yield from _sizes(api)
    yield from _bytes(api, plan)
    yield from _queues(api, plan)
    yield from _timeout(api)
    if api.times is not None:
        yield from _goal(api, api.times)
        yield from _gain(api, api.times)
        yield from _stages(api, api.times)
    yield from _drain(api, plan)


def _unmeasured(api: ApiFigures) -> Findings:
    if api.failure is not None:
        given = {"rows": api.failure.rows, "says": api.failure.says}
        if api.failure.rows > 1:
            yield error("handler-fails/batch", **given)
        else:
            yield error("handler-fails/schema" if api.row_is_made_up else "handler-fails", **given)
    elif api.timed_out:
        yield error("row-beyond-timeout", timeout_s=api.settings.timeout)
    elif api.unmeasured:
        yield note("not-measured", why=api.unmeasured)


def _compared(api: ApiFigures) -> Findings:
    """Report how rows in a batch affect each other; where requests run alone, only for information."""
    found = api.comparison
    if found is None or not found.key:
        return
    if api.is_single or not found.excess:
        yield note(found.key, **found.figures)
    elif found.excess < _LEAK:
        yield warning(found.key, **found.figures)
    else:
        yield error(found.key, **found.figures)


def _clients(api: ApiFigures, plan: Plan) -> Findings:
    goal, client_ms = api.settings.mb_max_latency, plan.client_timeout_ms
    if client_ms is not None and client_ms < goal and not api.streams:
        yield error("client-below-goal", client_s=client_ms / 1000, goal_s=goal / 1000, to=client_ms)


def _sizes(api: ApiFigures) -> Findings:
    settings, cap = api.settings, api.settings.mb_max_batch_size
    # The rows of a cost have no limit but the largest size.
    sizes = settings.allowed_batch_sizes or () if settings.cost is None else ()
    used = next((size for size in sizes if size >= cap), math.inf)
    useless = [str(size) for size in sizes if size > used]
    if useless:
        yield warning("sizes-beyond-cap", cap=cap, sizes=", ".join(useless), to=sizes[-1])
    lengths = settings.allowed_lengths or ()
    if lengths and lengths[-1] > cap:
        alone = ", ".join(f"{length:g}" for length in lengths if length > cap)
        yield warning("lengths-beyond-cap", cap=cap, lengths=alone, to=f"{lengths[-1]:g}")


def _bytes(api: ApiFigures, plan: Plan) -> Findings:
    most = api.settings.mb_max_batch_bytes
    row_bytes = None if api.times is None else api.times.row_bytes
    if api.is_single:
        return
    if row_bytes is not None and 2 * row_bytes > most:
        to = row_bytes * api.settings.limit_rows
        yield warning("row-above-batch-bytes", row=row_bytes, most=most, to=to)
    elif plan.max_body_bytes > most:
        yield note("body-above-batch-bytes", body=plan.max_body_bytes, most=most)


def _queues(api: ApiFigures, plan: Plan) -> Findings:
    settings, queue = api.settings, plan.max_queue_rows
    if api.is_single:
        return
    if settings.cost is None and queue < settings.limit_rows:
        cap = settings.limit_rows
        yield warning("queue-below-batch/rows", queue=queue, unit="row", batch=cap, to=20 * cap)
    if plan.max_queue_bytes < settings.mb_max_batch_bytes:
        batch = settings.mb_max_batch_bytes
        yield warning("queue-below-batch/bytes", queue=plan.max_queue_bytes, unit="byte", batch=batch)


def _timeout(api: ApiFigures) -> Findings:
    timeout, goal, cap = api.settings.timeout, api.settings.mb_max_latency, api.settings.limit_rows
    if timeout * 1000 < goal and not api.streams:
        to = math.ceil(goal / 100) / 2
        yield error("timeout-below-goal", timeout_s=timeout, goal_s=goal / 1000, to=to)
    if api.times is None or api.is_single or _keeps_goal(api):
        return
    full_ms = api.times.batch_ms(cap)
    if api.times.smallest_ms <= timeout * 1000 < full_ms:
        yield warning(
            "timeout-below-batch",
            cap=cap,
            unit=api.unit,
            full_s=full_ms / 1000,
            timeout_s=timeout,
            to=math.ceil(3 * full_ms / 1000),
            fitting=_within(api.times, timeout * 1000, api),
        )


def _goal(api: ApiFigures, times: Times) -> Findings:
    goal, cap = api.settings.mb_max_latency, api.settings.limit_rows
    least_ms, full_ms = times.smallest_ms, times.batch_ms(cap)
    if least_ms > goal:
        given = {"rows": times.sizes[0].rows, "unit": api.unit, "needed_s": least_ms / 1000}
        yield error("goal-below-row", **given, goal_s=goal / 1000, to=math.ceil(3 * least_ms))
    elif full_ms > goal and not api.is_single:
        given = {"cap": cap, "unit": api.unit, "full_s": full_ms / 1000, "goal_s": goal / 1000}
        given["fitting"] = _within(times, goal, api)
        if _keeps_goal(api):
            yield note("goal-below-batch", **given)
        else:
            yield warning("goal-below-batch/ignored", **given, policy=api.settings.policy)


def _gain(api: ApiFigures, times: Times) -> Findings:
    """Judge the gain from merging by the largest measured batch."""
    first, last = times.sizes[0], times.sizes[-1]
    if api.streams or last.rows == first.rows:
        return
    gain = (first.median_ms / first.rows) / max(last.median_ms / last.rows, 1e-9)
    given = {"rows": last.rows, "unit": api.unit, "gain": gain}
    is_safe = api.comparison is None or not api.comparison.excess
    if api.is_single and gain > _MUCH and is_safe:
        yield warning("policy-none", **given)
    elif not api.is_single and gain < WORTH:
        yield note("little-gain", **given)
    # With a cost, a batch may have any number of rows, so a jump is no size that could be set.
    if api.settings.cost is None:
        for rows in times.line.steps:
            yield note("step", rows=rows)


def _stages(api: ApiFigures, times: Times) -> Findings:
    """Say what overlapping stages would gain for the largest measured batch."""
    if times.stages_s is not None and api.settings.idempotent:
        alone_s, gap_s = sum(times.stages_s), max(times.stages_s)
        if gap_s < PAYS * alone_s:
            yield note("stages", rows=times.sizes[-1].rows, unit=api.unit, alone_s=alone_s, gap_s=gap_s)


def _drain(api: ApiFigures, plan: Plan) -> Findings:
    longest_ms = goal_ms = api.settings.mb_max_latency
    if api.times is not None and not (_keeps_goal(api) or api.is_single):
        full_ms = api.times.batch_ms(api.settings.limit_rows)
        longest_ms = max(goal_ms, min(full_ms, api.settings.timeout * 1000))
    longest_s = longest_ms / 1000
    if plan.drain_timeout_s < longest_s and not api.streams:
        to = math.ceil(2 * longest_s)
        yield warning("drain-below-goal", drain=plan.drain_timeout_s, longest_s=longest_s, to=to)


def _keeps_goal(api: ApiFigures) -> bool:
    return make_policy(api.settings.policy, limit_rows=1).keeps_goal


def _within(times: Times, limit_ms: float, api: ApiFigures) -> int:
    """Return the largest batch, at least 1, that ends in time, given that a full one does not."""
    line, most = times.line, api.settings.limit_rows - 1
    fitting = Estimate(line.intercept_ms, line.slope_ms).rows_within(limit_ms - times.overhead_ms, z=0)
    return int(max(1, min(fitting + 1e-9, most)))  # rounding must not cost a row
