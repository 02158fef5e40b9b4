"""The statistics of a model in Triton's form, from the counts of its API."""

from __future__ import annotations

import msgspec

from uncork_gateway.dialects.v2 import VERSION
from uncork_gateway.telemetry.metrics import FIRST_CLIENT_ERROR, ApiTally

_NS = 10**9


class DurationSum(msgspec.Struct, frozen=True):
    """A number of measurements, and the sum of their durations."""

    count: int = 0
    ns: int = 0


class InferenceStatistics(msgspec.Struct, frozen=True, kw_only=True):
    """Sums over requests.

    The gateway only knows a worker's total time, reported as ``compute_infer``. Clients expect the same count
    in all three ``compute`` fields.
    """

    success: DurationSum
    fail: DurationSum
    queue: DurationSum
    compute_input: DurationSum
    compute_infer: DurationSum
    compute_output: DurationSum
    cache_hit: DurationSum = DurationSum()
    cache_miss: DurationSum = DurationSum()


class BatchStatistics(msgspec.Struct, frozen=True, kw_only=True):
    """Sums over the batches of one size."""

    batch_size: int
    compute_input: DurationSum
    compute_infer: DurationSum
    compute_output: DurationSum


class ModelStatistics(msgspec.Struct, frozen=True, kw_only=True):
    """The statistics of one model since the gateway started.

    Attributes:
        last_inference: when the last batch was released, in milliseconds since 1970; 0 before the first.
        inference_count: answered rows.
        execution_count: batches that succeeded.
    """

    name: str
    version: str
    last_inference: int
    inference_count: int
    execution_count: int
    inference_stats: InferenceStatistics
    batch_stats: list[BatchStatistics]


def statistics_of(model: str, tally: ApiTally) -> ModelStatistics:
    """Return the statistics of a model from its API's counts."""
    inference = tally.inference
    answered = sum(count for status, count in tally.statuses.items() if status < FIRST_CLIENT_ERROR)
    others = tally.statuses.total() - answered
    return ModelStatistics(
        name=model,
        version=VERSION,
        last_inference=round(inference.last_release * 1000),
        inference_count=inference.rows,
        execution_count=tally.endings["worked"],
        inference_stats=InferenceStatistics(
            success=_sum(answered, inference.succeeded_s),
            fail=_sum(others, inference.failed_s),
            queue=_sum(tally.queue_wait.count, tally.queue_wait.sum),
            compute_input=_sum(inference.ran, 0.0),
            compute_infer=_sum(inference.ran, inference.run_s),
            compute_output=_sum(inference.ran, 0.0),
        ),
        batch_stats=[
            BatchStatistics(
                batch_size=rows,
                compute_input=_sum(batches, 0.0),
                compute_infer=_sum(batches, inference.batches_s[rows]),
                compute_output=_sum(batches, 0.0),
            )
            for rows, batches in sorted(inference.batches.items())
        ],
    )


def _sum(count: int, seconds: float) -> DurationSum:
    return DurationSum(count, round(seconds * _NS))
