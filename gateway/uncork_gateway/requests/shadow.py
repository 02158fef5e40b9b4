"""Copies requests to a shadow version, whose responses are compared with the real ones and dropped."""

from __future__ import annotations

import asyncio
import time
from collections import Counter, defaultdict
from collections.abc import Iterable
from math import isclose
from typing import Any, Literal

import msgspec
import numpy as np
from msgspec.structs import replace
from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from uncork_dispatcher import AsyncDispatcher, RequestResult, RequestShed
from uncork_dispatcher.jobs import Waiter
from uncork_gateway.codecs import Marshalled
from uncork_gateway.dialects.base import HandlerResult
from uncork_gateway.requests.parts import ApiSubmission, Callbacks, submission_of, submit
from uncork_gateway.telemetry.distribution import Distribution
from uncork_gateway.telemetry.metrics import SECONDS_BOUNDS
from uncork_workers.wire.forms import ListForm, RecordsForm, TensorForm

_RELATIVE = 1e-6
# Comparing longer answers would block the event loop for too long.
_MOST_COMPARED_BYTES = 2**20
_FLOATS = {"FP16": np.float16, "FP32": np.float32, "FP64": np.float64}

Outcome = Literal["agreed", "differed", "failed", "shed", "not_compared"]
"""The outcome of a copy: its response agrees with the original's or differs; only the copy failed or was
refused; or the two cannot be compared."""


class ShadowTally(Collector):
    """The counts of a shadow version, by API.

    Attributes:
        outcomes: the number of copies by outcome, without those whose original was cancelled because its
            client left; ``duration``: the times to the response of the copies that got one.
    """

    def __init__(self) -> None:
        self.outcomes: defaultdict[str, Counter[Outcome]] = defaultdict(Counter)
        self.duration: defaultdict[str, Distribution] = defaultdict(lambda: Distribution(SECONDS_BOUNDS))

    def total(self) -> Counter[Outcome]:
        """Return the number of copies by outcome, over all APIs."""
        return sum(self.outcomes.values(), Counter())

    def collect(self) -> Iterable[Metric]:
        if not self.outcomes:
            return
        text = "Copies of requests to other versions, by outcome."
        counter = CounterMetricFamily("uncork_shadow_answers", text, labels=["api", "outcome"])
        for api, outcomes in self.outcomes.items():
            for outcome, count in outcomes.items():
                counter.add_metric([api, outcome], count)
        yield counter
        text = "Time from a copy of a request to its response."
        histogram = HistogramMetricFamily("uncork_shadow_duration_seconds", text, labels=["api"])
        for api, duration in self.duration.items():
            duration.add_to(histogram, [api])
        yield histogram


class Shadow:
    """Copies the requests of an API to the same API of another version, which has the same contract.

    Copies have their own queue, workers and limits, so they never delay or displace real requests.
    """

    def __init__(
        self,
        api: str,
        dispatcher: AsyncDispatcher[Marshalled, HandlerResult],
        tally: ShadowTally,
    ) -> None:
        self._api = api
        self._dispatcher = dispatcher
        self._outcomes = tally.outcomes[api]
        self._duration = tally.duration[api]
        self._loop = asyncio.get_running_loop()

    def follow(self, asked: ApiSubmission) -> asyncio.Handle:
        """Submit a copy of a request, whose waiter becomes one that compares the results.

        Return a handle that cancels the copy if the request is refused at once.
        """
        assert asked.waiter is not None
        asked.waiter = comparison = _Comparison(asked.waiter, self._outcomes, self._duration)
        # After the request itself.
        return self._loop.call_soon(self._send, comparison, asked.payload, asked.bulk)

    def _send(self, comparison: _Comparison, payload: Marshalled, bulk: bool) -> None:
        copy = Callbacks(comparison.copy_answered, comparison.copy_ended)
        try:
            own = replace(payload, span=None)
            submit(self._dispatcher, submission_of(copy, self._api, own, bulk=bulk))
        except RequestShed as error:
            copy.failed(error)
        except KeyError:  # The other version has dropped the API since the request came.
            copy.failed(RequestShed("draining", 0.0))


class _Comparison:
    """Waits for the real result, passes it on, and then waits for the copy's."""

    def __init__(
        self, waiter: Waiter[HandlerResult], outcomes: Counter[Outcome], duration: Distribution
    ) -> None:
        self._waiter = waiter
        self._outcomes = outcomes
        self._duration = duration
        self._began = time.perf_counter()
        self._real: HandlerResult | Exception | None = None
        self._copied: HandlerResult | Exception | None = None
        self._took_s: float | None = None

    def answered(self, answer: RequestResult[HandlerResult]) -> None:
        self._waiter.answered(answer)
        self._real = answer.result
        self._compare()

    def failed(self, error: Exception) -> None:
        self._waiter.failed(error)
        self._real = error
        self._compare()

    def copy_answered(self, answer: RequestResult[HandlerResult]) -> None:
        self._took_s = time.perf_counter() - self._began
        self.copy_ended(answer.result)

    def copy_ended(self, copied: HandlerResult | Exception) -> None:
        """Compare the copy's result or error with the real one, once both are known."""
        self._copied = copied
        self._compare()

    def _compare(self) -> None:
        if self._real is not None and self._copied is not None:
            self._outcomes[outcome_of(self._real, self._copied)] += 1
            if self._took_s is not None:
                self._duration.observe(self._took_s)


def outcome_of(real: HandlerResult | Exception, copied: HandlerResult | Exception) -> Outcome:
    """Return the outcome of a copy, compared with the real request."""
    if isinstance(copied, RequestShed):
        return "shed"
    if isinstance(real, Exception):
        return "not_compared"
    if isinstance(copied, Exception):
        return "failed"
    if copied.status >= 500 > real.status:
        return "failed"
    same = same_answer(real, copied)
    return "not_compared" if same is None else "agreed" if same else "differed"


def same_answer(one: HandlerResult, other: HandlerResult) -> bool | None:
    """Return True if two results have equal content; None if that is unknown.

    Numbers are equal if they differ by at most a millionth, because library versions differ in the order of
    additions. Results over 1 MiB, and results that are not rows, are only compared byte by byte.
    """
    if (one.status, one.content_type) != (other.status, other.content_type):
        return False
    if (one.body, one.form) == (other.body, other.form):
        return True
    if one.content_type or max(len(one.body), len(other.body)) > _MOST_COMPARED_BYTES:
        return None
    match one.form, other.form:
        case TensorForm(), TensorForm():
            return one.form == other.form and _same_tensors(one, other)
        case (ListForm(), ListForm()) | (RecordsForm(), RecordsForm()):
            return one.form == other.form and _same_json(b"[%b]" % one.body, b"[%b]" % other.body)
        case None, None:
            return _same_json(one.body, other.body)
        case _:
            return None


def _same_tensors(one: HandlerResult, other: HandlerResult) -> bool:
    assert isinstance(one.form, TensorForm)
    dtype = _FLOATS.get(one.form.datatype)
    # Whole numbers and texts are the same only if their bytes are.
    if dtype is None or len(one.body) != len(other.body):
        return False
    first, second = np.frombuffer(one.body, dtype), np.frombuffer(other.body, dtype)
    return bool(np.allclose(first, second, rtol=_RELATIVE, atol=0.0, equal_nan=True))


def _same_json(one: bytes, other: bytes) -> bool | None:
    try:
        return same_value(msgspec.json.decode(one), msgspec.json.decode(other))
    except (msgspec.DecodeError, RecursionError, OverflowError):  # nested too deeply, or too many digits
        return None


def same_value(one: Any, other: Any) -> bool:
    """Return True if two JSON values are equal, up to the last digits of numbers."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same_value(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same_value, one, other))
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, int | float) and isinstance(other, int | float):
        return isclose(one, other, rel_tol=_RELATIVE)
    return bool(one == other)
