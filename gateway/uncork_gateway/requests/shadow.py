"""Copies requests to a shadow version, whose responses are compared with the real ones and dropped."""

from __future__ import annotations

import asyncio
import math
import time
from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import Literal

from msgspec.structs import replace
from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from uncork_dispatcher import AsyncDispatcher, RequestResult, RequestShed
from uncork_dispatcher.jobs import Waiter
from uncork_gateway.codecs import Marshalled
from uncork_gateway.dialects.base import HandlerResult
from uncork_gateway.requests.group_parts import Client, submit
from uncork_gateway.requests.same_answer import same_answer
from uncork_gateway.telemetry.distribution import Distribution
from uncork_gateway.telemetry.metrics import SECONDS_BOUNDS

Outcome = Literal["agreed", "differed", "failed", "shed", "not_compared"]
"""The outcome of a copy: its response agrees with the original's or differs; only the copy failed or was
refused; or the two cannot be compared."""


class ShadowTally(Collector):
    """The counts of a shadow version, by API.

    Attributes:
        outcomes: the number of copies by outcome; ``duration``: their times to the response.
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
    """Copies the requests of an API to the same API of another version.

    Copies have their own queue, workers and limits, so they never delay or displace real requests.
    """

    def __init__(
        self, api: str, dispatcher: AsyncDispatcher[Marshalled, HandlerResult], tally: ShadowTally
    ) -> None:
        self._api = api
        self._dispatcher = dispatcher
        self._outcomes = tally.outcomes[api]
        self._duration = tally.duration[api]
        self._loop = asyncio.get_running_loop()

    def follow(
        self, waiter: Waiter[HandlerResult], payload: Marshalled, *, bulk: bool = False
    ) -> Waiter[HandlerResult]:
        """Submit a copy of a request; return the waiter to use for the real request instead of ``waiter``."""
        comparison = _Comparison(waiter, self._outcomes)
        # After the request itself.
        self._loop.call_soon(self._send, comparison, payload, bulk)
        return comparison

    def _send(self, comparison: _Comparison, payload: Marshalled, bulk: bool) -> None:
        copy = _Copy(comparison, self._duration)
        client = Client(client_timeout_s=math.inf, source=None, flow=None, bulk=bulk)
        try:
            submit(self._dispatcher, copy, self._api, replace(payload, span=None), client)
        except RequestShed as error:
            copy.failed(error)
        except KeyError:  # The other version has dropped the API since the request came.
            copy.failed(RequestShed("draining", 0.0))


class _Comparison:
    """Waits for the real result, passes it on, and then waits for the copy's."""

    def __init__(self, waiter: Waiter[HandlerResult], outcomes: Counter[Outcome]) -> None:
        self._waiter = waiter
        self._outcomes = outcomes
        self._real: HandlerResult | Exception | None = None
        self._copied: HandlerResult | Exception | None = None

    def answered(self, answer: RequestResult[HandlerResult]) -> None:
        self._waiter.answered(answer)
        self._real = answer.result
        self._compare()

    def failed(self, error: Exception) -> None:
        self._waiter.failed(error)
        self._real = error
        self._compare()

    def copy_ended(self, copied: HandlerResult | Exception) -> None:
        """Compare the copy's result or error with the real one, once both are known."""
        self._copied = copied
        self._compare()

    def _compare(self) -> None:
        if self._real is not None and self._copied is not None:
            self._outcomes[outcome_of(self._real, self._copied)] += 1


class _Copy:
    """Waits for the result of a copy."""

    def __init__(self, comparison: _Comparison, duration: Distribution) -> None:
        self._comparison = comparison
        self._duration = duration
        self._began = time.perf_counter()

    def answered(self, answer: RequestResult[HandlerResult]) -> None:
        self._duration.observe(time.perf_counter() - self._began)
        self._comparison.copy_ended(answer.result)

    def failed(self, error: Exception) -> None:
        self._comparison.copy_ended(error)


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
