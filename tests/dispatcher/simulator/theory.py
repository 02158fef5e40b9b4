"""Theory of batch servers: closed forms to check a simulation against.

Letters of the formulas: a batch of ``n`` rows takes ``s(n) = a + b*n`` seconds (``a`` the intercept, ``b``
the slope), ``N`` workers, ``B`` rows in a batch at most, and requests of one row that arrive in a Poisson
stream of ``lambda`` per second. Workers are equal, and latency is from arrival to answer, in seconds. The
mean batch

    n* = lambda*a / (N - lambda*b)

is the smallest that the workers can sustain: with smaller ones the intercepts take too much of their time.
Where no source is named, the formula was derived for this project; its docstring says how.

Every function takes the straight line of a :class:`ServiceTime`; all but :func:`unbatched_mean_s` and
:func:`lower_bound_s` are about batch times without noise. They raise an error for service times that the
formula does not cover.
"""

from __future__ import annotations

import math

from uncork_dispatcher.learning.line import keep_up_rows
from uncork_dispatcher.simulator.service import ServiceTime


def unbatched_mean_s(service: ServiceTime, *, rate: float) -> float:
    """Return the mean latency with one worker that takes requests one at a time, first come first served.

    ``s(1) + lambda*s(1)^2*(1 + cv^2) / (2*(1 - lambda*s(1)))``, exact: the formula of Pollaczek and
    Khinchine; without noise (``cv = 0``) the queue is M/D/1. ``rate`` is lambda, per second.

    Raises:
        ValueError: if one worker cannot keep up, or the service time is more than a line with noise.
    """
    _require_line(service, noise=True)
    one = service.mean(1)
    load = rate * one
    _require_stable(load < 1, rate=rate, most=1 / one)
    return one + load * one * (1 + service.noise_cv**2) / (2 * (1 - load))


def release_when_free_bound_s(service: ServiceTime, *, rate: float) -> float:
    """Return an upper bound of the mean latency with one worker under release when free.

    No cap on batches. ``min(phi0, phi1)``, with ``r = lambda*b`` the load that rows alone make::

        phi0 = (a + b) / (2*(1 - r)) * (1 + 2*lambda*a + (1 - lambda*a) / (1 + r))
        phi1 = 3/2 * a / (1 - r)  +  b/2 * (r + 2) / (1 - r^2)

    ``phi1`` is exact when the worker never finds the queue empty, so in effect from ``r`` = 0.6 on.
    Source: Inoue 2021, "Queueing analysis of GPU-based inference servers with dynamic batching", arXiv
    1912.06322. ``rate`` is lambda, per second.

    Raises:
        ValueError: if one worker cannot keep up, or the service time is more than a line.
    """
    _require_line(service)
    a, b = service.intercept_s, service.slope_s
    load = rate * b
    _require_stable(load < 1, rate=rate, most=_most(service, workers=1))
    phi0 = (a + b) / (2 * (1 - load)) * (1 + 2 * rate * a + (1 - rate * a) / (1 + load))
    phi1 = 1.5 * a / (1 - load) + b / 2 * (load + 2) / (1 - load**2)
    return min(phi0, phi1)


def smallest_mean_batch(
    service: ServiceTime, *, rate: float, workers: int = 1, limit_rows: float = math.inf
) -> float:
    """Return the smallest mean batch with which ``workers`` workers keep up: ``n*``, maybe below 1.

    See :func:`keep_up_rows`. ``rate`` is rows per second.

    Raises:
        ValueError: if they cannot keep up even with batches of ``limit_rows``, or the service time is more
            than a line with noise.
    """
    _require_line(service, noise=True)
    batch = keep_up_rows(rate, workers=workers, intercept_s=service.intercept_s, slope_s=service.slope_s)
    most = _most(service, workers=workers, limit_rows=limit_rows)
    _require_stable(batch < limit_rows, rate=rate, most=most)
    return batch


def lower_bound_s(
    service: ServiceTime, *, rate: float, workers: int = 1, limit_rows: float = math.inf
) -> float:
    """Return the mean latency that no policy can beat unless it knows the future, sheds or interrupts.

    ``max(s(1), s(n*) + max(0, n* - 1) / (2*lambda))``. Execution: the batch that a request finds itself in
    has ``E[n^2]/E[n] >= n*`` rows on average. Waiting: collecting batches of ``n`` rows from a Poisson stream
    keeps ``(n - 1)/2`` requests waiting at the least, on average, which is what releasing at exactly
    ``n`` does; divided by lambda this is a time (Little). A measured mean below the bound is a wrong
    measurement. ``rate`` is lambda, per second.

    Raises:
        ValueError: as :func:`smallest_mean_batch`.
    """
    batch = smallest_mean_batch(service, rate=rate, workers=workers, limit_rows=limit_rows)
    collecting = (batch - 1) / (2 * rate) if batch > 1 else 0.0
    return max(service.mean(1), service.mean(batch) + collecting)


def paced_mean_s(
    service: ServiceTime, *, rate: float, workers: int = 1, limit_rows: float = math.inf
) -> float:
    """Return the mean latency of an ideal: the whole queue leaves as a batch every ``s(n*)/N`` seconds.

    ``s(n*) * (1 + 1/(2*N)) + b``, an approximation for ``n*`` of about 2 and more, and never less than
    :func:`lower_bound_s`. A request waits half a gap on average, and its batch is one row larger than the
    mean because it is in it. A good policy comes close to it. ``rate`` is lambda, per second.

    Raises:
        ValueError: as :func:`smallest_mean_batch`, or if there is noise.
    """
    _require_line(service)
    batch = smallest_mean_batch(service, rate=rate, workers=workers, limit_rows=limit_rows)
    paced = service.mean(batch) * (1 + 1 / (2 * workers)) + service.slope_s
    return max(paced, lower_bound_s(service, rate=rate, workers=workers, limit_rows=limit_rows))


def _most(service: ServiceTime, *, workers: int, limit_rows: float = math.inf) -> float:
    """Return the requests per second of the workers with the largest batches."""
    a, b = service.intercept_s, service.slope_s
    each = a / limit_rows + b
    return workers / each if each else math.inf


def _require_line(service: ServiceTime, *, noise: bool = False) -> None:
    if service.buckets or service.speeds or service.changes:
        raise ValueError(f"the theory requires equal workers and linear batch times, got {service}")
    if service.noise_cv and not noise:
        raise ValueError(f"this formula requires batch times without noise, got {service}")


def _require_stable(stable: bool, *, rate: float, most: float) -> None:
    if not rate > 0:
        raise ValueError(f"the arrival rate must be positive, got {rate}")
    if not stable:
        raise ValueError(f"{rate:g} requests per second exceed the capacity of {most:g}")
