"""The declared matrices of cells in which policies are compared, and runs of many cells on all cores."""

from __future__ import annotations

import multiprocessing
import signal
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import replace
from itertools import islice, product

from uncork_dispatcher.policies import POLICIES
from uncork_dispatcher.simulator.cells import BATCHES, Cell
from uncork_dispatcher.simulator.compare import RELEASE_WHEN_FREE, Comparison, compared, require_base
from uncork_dispatcher.simulator.measure import Measured, measure
from uncork_dispatcher.simulator.padded import all_padded_cells
from uncork_dispatcher.simulator.theory import staggered_within_goal

MODELS = ((1.0, 0.02), (5.0, 0.1), (5.0, 1.0), (40.0, 1.0))
"""Intercept and slope in milliseconds."""
WORKERS = (1, 2, 4, 8)
LOADS = (0.05, 0.2, 0.5, 0.8, 0.95)
NOISES = (0.0, 0.1, 0.3)
ARRIVAL_KINDS = ("poisson", "gamma:2", "gamma:4", "onoff", "step")
CLIENTS = (1, 4, 16, 64, 256)
THINK_MS = (0.0, 5.0)
_WAITS_MS = (0, 5, 20)
ALL_POLICIES = tuple(
    name
    for policy in POLICIES
    for name in ([f"fixed:{wait_ms}" for wait_ms in _WAITS_MS] if policy == "fixed" else [policy])
)
"""Each policy by its name, and ``fixed`` with three waits."""

# In staggered capacities: the rate, by workers, at which 99 % should meet a binding goal; and overloads.
_GOAL_MARKS = {1: 0.85, 2: 0.87, 4: 0.90, 8: 0.93}
_OVERLOADS = (1.0, 1.2, 2.0, 4.0)
# A step of 5x whose average is half the capacity peaks at 0.83 of it; the next load would overflow.
_MOST_STEP_LOAD = 0.5
# So long that nothing is shed or released early: a closed loop measures throughput. With 1 s and 256 clients
# of a slow model, policies with small batches would shed nearly all requests.
_NO_GOAL_MS = 1e6
# Tasks submitted to each process in advance.
_AHEAD = 4
# How long Ctrl-C may be delayed between results.
_INTERRUPT_WITHIN_S = 0.2

Task = tuple[Cell, str, int]


def open_cells(
    *,
    models: Iterable[tuple[float, float]] = MODELS,
    workers: Iterable[int] = WORKERS,
    loads: Iterable[float] = LOADS,
    arrivals: Iterable[str] = ARRIVAL_KINDS,
    noises: Iterable[float] = NOISES,
) -> list[Cell]:
    """Return the open-loop matrix, or the part of it with these values.

    Step arrivals are included only at loads of up to 0.5: the rate of their second half is 5/3 of the
    average, which exceeds the capacity at 0.8. Recorded arrivals are not part of the matrix.
    """
    return [
        Cell(intercept_ms=intercept, slope_ms=slope, noise_cv=noise, workers=count, load=load, arrivals=kind)
        for (intercept, slope), noise, count, kind, load in product(models, noises, workers, arrivals, loads)
        if kind != "step" or load <= _MOST_STEP_LOAD
    ]


def closed_cells(
    *,
    models: Iterable[tuple[float, float]] = MODELS,
    workers: Iterable[int] = WORKERS,
    clients: Iterable[int] = CLIENTS,
    thinks_ms: Iterable[float] = THINK_MS,
    noises: Iterable[float] = NOISES,
) -> list[Cell]:
    """Return the closed-loop matrix, or the part of it with these values: a round trip of 0.5 ms, no goal."""
    return [
        Cell(
            intercept_ms=intercept,
            slope_ms=slope,
            noise_cv=noise,
            workers=count,
            goal_ms=_NO_GOAL_MS,
            clients=many,
            think_ms=think,
        )
        for (intercept, slope), noise, count, think, many in product(
            models, noises, workers, thinks_ms, clients
        )
    ]


def count_cells() -> list[Cell]:
    """Return the cells where holding matters most: several workers, medium load, a large intercept."""
    models = [model for model in MODELS if model != (5.0, 1.0)]
    return open_cells(
        models=models, workers=(4, 8), loads=(0.2, 0.5, 0.8), arrivals=("poisson",), noises=(0.0, 0.1)
    )


def goal_cells() -> list[Cell]:
    """Return cells with a goal that binds: 5 times the time of one row alone.

    Poisson arrivals at 0.85 / 0.87 / 0.90 / 0.93 (with 1, 2, 4, 8 workers), 1, 1.2, 2 and 4 times the
    capacity of staggered workers within the goal, without noise and with 0.1. See :func:`staggered_per_s`.
    """
    cells = []
    for (intercept, slope), noise, count in product(MODELS, (0.0, 0.1), WORKERS):
        cell = Cell(
            intercept_ms=intercept,
            slope_ms=slope,
            noise_cv=noise,
            workers=count,
            goal_ms=5 * (intercept + slope),
            load=1.0,
        )
        share = staggered_per_s(cell) / cell.capacity
        cells += [replace(cell, load=times * share) for times in (_GOAL_MARKS[count], *_OVERLOADS)]
    return cells


def clients_cells() -> list[Cell]:
    """Return the closed-loop cells in which policies are compared with the best setting in hindsight."""
    return closed_cells(noises=(0.1,))


def quick_cells() -> list[Cell]:
    """Return 16 cells, open and closed, that show the differences in about a minute."""
    models = ((5.0, 0.1), (40.0, 1.0))
    return [
        *open_cells(models=models, workers=(1, 4), loads=(0.2, 0.8), arrivals=("poisson",), noises=(0.1,)),
        *closed_cells(models=models, workers=(1, 4), clients=(4, 64), thinks_ms=(0.0,), noises=(0.1,)),
    ]


MATRICES: dict[str, Callable[[], list[Cell]]] = {
    "quick": quick_cells,
    "count": count_cells,
    "open": open_cells,
    "closed": closed_cells,
    "clients": clients_cells,
    "goal": goal_cells,
    "padded": all_padded_cells,
}
"""Declared sets of cells by name."""


def staggered_per_s(cell: Cell) -> float:
    """Return the rows per second that workers starting in turn carry within the goal, without noise.

    Raises:
        ValueError: if one row alone misses the goal, or rows have lengths.
    """
    if cell.lengths is not None:
        raise ValueError("the capacity of staggered workers is known for rows of equal cost only")
    return staggered_within_goal(
        replace(cell.service, noise_cv=0.0),
        goal_s=cell.goal_ms / 1000,
        workers=cell.workers,
        limit_rows=cell.limit_rows,
    )


def run_cells(
    cells: Sequence[Cell],
    policies: Sequence[str],
    seeds: Sequence[int],
    *,
    base: str = RELEASE_WHEN_FREE,
    batches: int = BATCHES,
    requests: int | None = None,
    processes: int = 1,
    progress: Callable[[int, int], None] | None = None,
) -> list[Comparison]:
    """Measure every policy in every cell with every seed; return the results in order of cells.

    Duplicates are measured once. ``progress`` is called with the number of finished runs and of all runs. An
    exception, Ctrl-C included, ends the processes. They are spawned: a program that calls this with more
    than one needs the usual ``if __name__ == "__main__"``.

    Raises:
        ValueError: as :func:`~uncork_dispatcher.simulator.measure.measure`, or if the base is not among the
            policies.
        OSError: if recorded arrivals cannot be read.
        concurrent.futures.process.BrokenProcessPool: if a process was killed.
    """
    require_base(base, policies)
    tasks = list(dict.fromkeys(product(cells, policies, seeds)))
    seen: dict[Task, Measured] = {}
    for task, measured in _measure_all(tasks, batches, requests, processes):
        seen[task] = measured
        if progress is not None:
            progress(len(seen), len(tasks))
    return [
        compared(
            cell, {policy: [seen[cell, policy, seed] for seed in seeds] for policy in policies}, base=base
        )
        for cell in cells
    ]


def _measure_all(
    tasks: Sequence[Task], batches: int, requests: int | None, processes: int
) -> Iterator[tuple[Task, Measured]]:
    """Yield the result of every task, in the order of completion."""
    processes = min(processes, len(tasks))
    if processes <= 1:
        for task in tasks:
            yield task, measure(*task, batches=batches, requests=requests)
        return
    with _pool(processes) as pool:
        waiting: dict[Future[Measured], Task] = {}
        left = iter(tasks)
        while True:
            for task in islice(left, _AHEAD * processes - len(waiting)):
                with _interrupt_later():  # because this may start a process
                    waiting[pool.submit(measure, *task, batches=batches, requests=requests)] = task
            if not waiting:
                return
            # An interrupt inside wait() may leave a future locked. The thread that fails the futures of ended
            # processes would then wait for that lock, and this one for the thread.
            with _interrupt_later():
                done, _ = wait(waiting, timeout=_INTERRUPT_WITHIN_S, return_when=FIRST_COMPLETED)
            for future in done:
                yield waiting.pop(future), future.result()


@contextmanager
def _pool(processes: int) -> Iterator[ProcessPoolExecutor]:
    """Provide processes that end with the block, even in the middle of their work."""
    others = set(multiprocessing.active_children())
    # Spawned, because a fork would copy the locks of threads, such as that of a progress bar.
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(processes, mp_context=context, initializer=_end_on_interrupt)
    try:
        yield pool
    except BaseException:
        for process in set(multiprocessing.active_children()) - others:
            process.terminate()
        raise
    finally:
        pool.shutdown(cancel_futures=True)


@contextmanager
def _interrupt_later() -> Iterator[None]:
    """Delay Ctrl-C until the end of the block, in processes started in it until the end of their imports."""
    handler = signal.getsignal(signal.SIGINT)
    if not callable(handler) or threading.current_thread() is not threading.main_thread():
        yield
        return
    seen: list[int] = []
    # New processes inherit the mask. Here it is not enough: another thread, such as one of a numerical
    # library, takes the signal, and the handler still runs in this thread.
    signal.signal(signal.SIGINT, lambda number, _: seen.append(number))
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        signal.signal(signal.SIGINT, handler)
        if seen:
            signal.raise_signal(signal.SIGINT)


def _end_on_interrupt() -> None:
    """End silently on Ctrl-C, which goes to all processes of a terminal: only one should report it."""
    # A shell makes its background processes ignore the signal.
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
