"""Triton's statistics of a model, for HTTP and gRPC."""

from typing import Any

from uncork_gateway.pages.models.metadata import Model
from uncork_gateway.telemetry.metrics import FIRST_CLIENT_ERROR

_NS = 10**9


def statistics_of(model: Model) -> dict[str, Any]:
    """Return the statistics of a model since the gateway started, from its API's counts.

    The gateway knows only a batch's total time in the worker, reported as ``compute_infer``. Clients expect
    the same count in all three ``compute`` fields.
    """
    tally = model.tally
    inference = tally.inference
    answered = sum(count for status, count in tally.statuses.items() if status < FIRST_CLIENT_ERROR)
    return {
        "name": model.name,
        "version": model.version,
        "last_inference": round(inference.last_release * 1000),
        "inference_count": inference.rows,
        "execution_count": tally.endings["worked"],
        "inference_stats": {
            "success": _duration(answered, inference.succeeded_s),
            "fail": _duration(tally.statuses.total() - answered, inference.failed_s),
            "queue": _duration(tally.queue_wait.count, tally.queue_wait.sum),
            **_compute(inference.ran, inference.run_s),
            "cache_hit": _duration(0, 0.0),
            "cache_miss": _duration(0, 0.0),
        },
        "batch_stats": [
            {"batch_size": rows, **_compute(batches, inference.batches_s[rows])}
            for rows, batches in sorted(inference.batches.items())
        ],
    }


def _compute(count: int, seconds: float) -> dict[str, Any]:
    nothing = _duration(count, 0.0)
    return {"compute_input": nothing, "compute_infer": _duration(count, seconds), "compute_output": nothing}


def _duration(count: int, seconds: float) -> dict[str, int]:
    return {"count": count, "ns": round(seconds * _NS)}
