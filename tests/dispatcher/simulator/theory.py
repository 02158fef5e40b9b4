"""Closed forms of batch servers to check a simulation against.

Letters of the formulas: a batch of ``n`` rows takes ``s(n) = a + b*n`` seconds (``a`` the intercept, ``b``
the slope), ``N`` workers, and requests of one row that arrive in a Poisson stream of ``lambda`` per second,
the ``rate``. Latency is from arrival to answer, in seconds. The mean batch

    n* = lambda*a / (N - lambda*b)

is the smallest that the workers can sustain: with smaller ones the intercepts take too much of their time.
Where no source is named, the formula was derived for this project; its docstring says how.
"""

from __future__ import annotations

from uncork_dispatcher.simulator.service import ServiceTime


def unbatched_mean_s(service: ServiceTime, *, rate: float) -> float:
    """Return the mean latency with one worker that takes requests one at a time, first come first served.

    ``s(1) + lambda*s(1)^2*(1 + cv^2) / (2*(1 - lambda*s(1)))``, exact: the formula of Pollaczek and
    Khinchine; without noise (``cv = 0``) the queue is M/D/1.
    """
    one = service.mean(1)
    load = rate * one
    return one + load * one * (1 + service.noise_cv**2) / (2 * (1 - load))


def release_when_free_bound_s(service: ServiceTime, *, rate: float) -> float:
    """Return an upper bound of the mean latency with one worker under release when free.

    No cap on batches. ``min(phi0, phi1)``, with ``r = lambda*b`` the load that rows alone make::

        phi0 = (a + b) / (2*(1 - r)) * (1 + 2*lambda*a + (1 - lambda*a) / (1 + r))
        phi1 = 3/2 * a / (1 - r)  +  b/2 * (r + 2) / (1 - r^2)

    ``phi1`` is exact when the worker never finds the queue empty, so in effect from ``r`` = 0.6 on.
    Source: Inoue 2021, "Queueing analysis of GPU-based inference servers with dynamic batching", arXiv
    1912.06322.
    """
    a, b = service.intercept_s, service.slope_s
    load = rate * b
    phi0 = (a + b) / (2 * (1 - load)) * (1 + 2 * rate * a + (1 - rate * a) / (1 + load))
    phi1 = 1.5 * a / (1 - load) + b / 2 * (load + 2) / (1 - load**2)
    return min(phi0, phi1)


def lower_bound_s(service: ServiceTime, *, rate: float, workers: int) -> float:
    """Return the mean latency that no policy can beat unless it knows the future, sheds or interrupts.

    ``max(s(1), s(n*) + max(0, n* - 1) / (2*lambda))``. Execution: the batch that a request finds itself in
    has ``E[n^2]/E[n] >= n*`` rows on average. Waiting: collecting batches of ``n`` rows from a Poisson stream
    keeps ``(n - 1)/2`` requests waiting at the least, on average, which is what releasing at exactly
    ``n`` does; divided by lambda this is a time (Little). A measured mean below the bound is a wrong
    measurement.
    """
    batch = service.estimate.keep_up_rows(rate, workers=workers)
    collecting = (batch - 1) / (2 * rate) if batch > 1 else 0.0
    return max(service.mean(1), service.mean(batch) + collecting)
