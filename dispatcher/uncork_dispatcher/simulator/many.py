"""Measures policies in many cells, with several processes."""

from __future__ import annotations

import multiprocessing
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import contextmanager
from itertools import islice, product

from uncork_dispatcher.policies import POLICIES
from uncork_dispatcher.simulator.cells import BATCHES, Cell
from uncork_dispatcher.simulator.compare import RELEASE_WHEN_FREE, Comparison, compared
from uncork_dispatcher.simulator.measure import Measured, measure

_WAITS_MS = (0, 5, 20)
ALL_POLICIES = tuple(
    name
    for policy in POLICIES
    for name in ([f"fixed:{wait_ms}" for wait_ms in _WAITS_MS] if policy == "fixed" else [policy])
)
"""The names of all policies; ``fixed`` with three waits."""


Task = tuple[Cell, str, int]


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
    exception, Ctrl-C included, ends the processes. They are spawned: with more than one, the calling program
    must guard its start with ``if __name__ == "__main__"``.

    Raises:
        ValueError: as for :func:`~uncork_dispatcher.simulator.measure.measure`.
        OSError: if recorded arrivals cannot be read.
        concurrent.futures.process.BrokenProcessPool: if a process was killed.
    """
    assert base in policies, base  # rather than after hours
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
            for task in islice(left, 4 * processes - len(waiting)):
                with _interrupt_later():  # because this may start a process
                    waiting[pool.submit(measure, *task, batches=batches, requests=requests)] = task
            if not waiting:
                return
            # An interrupt inside wait() may leave a future locked. The thread that fails the futures of ended
            # processes would then wait for that lock, and this one for the thread.
            with _interrupt_later():
                # A timeout, so that Ctrl-C is handled between results.
                done, _ = wait(waiting, timeout=0.2, return_when=FIRST_COMPLETED)
            for future in done:
                yield waiting.pop(future), future.result()


@contextmanager
def _pool(processes: int) -> Iterator[ProcessPoolExecutor]:
    """Provide a pool of processes; an exception in the block ends them in the middle of their work."""
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
    """Delay Ctrl-C until the block ends; in processes that the block starts, until their imports end."""
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
    """Make this process end silently on Ctrl-C, which all processes of a terminal receive."""
    # A shell makes its background processes ignore the signal.
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
