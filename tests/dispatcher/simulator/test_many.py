"""Runs of many cells on several processes, and Ctrl-C meanwhile."""

from __future__ import annotations

import dataclasses
import multiprocessing
import signal
import threading
from collections.abc import Iterator
from concurrent.futures.process import BrokenProcessPool
from typing import Any

import pytest

from uncork_dispatcher.simulator.cells import Cell
from uncork_dispatcher.simulator.compare import RELEASE_WHEN_FREE, compared
from uncork_dispatcher.simulator.many import _end_on_interrupt, _interrupt_later, run_cells
from uncork_dispatcher.simulator.measure import measure

SMALL = [
    Cell(intercept_ms=5, slope_ms=0.1, noise_cv=0.1, workers=2, load=0.5),
    Cell(intercept_ms=5, slope_ms=0.1, workers=1, goal_ms=1e6, clients=8),
    Cell(intercept_ms=1, slope_ms=0.02, workers=1, load=0.8, arrivals="gamma:2"),
]
FEW = ["cork", "fixed:0"]


@pytest.mark.parametrize("processes", [1, 2])
def test_results_come_in_order_of_the_cells(processes: int) -> None:
    """The same as cell by cell, however many processes; and every run is reported."""
    told: list[tuple[int, int]] = []
    found = run_cells(
        SMALL,
        FEW,
        [1, 2],
        requests=100,
        processes=processes,
        progress=lambda done, of: told.append((done, of)),
    )

    alone = [
        {policy: [measure(cell, policy, seed, requests=100) for seed in (1, 2)] for policy in FEW}
        for cell in SMALL
    ]
    assert found == [
        compared(cell, seen, base=RELEASE_WHEN_FREE) for cell, seen in zip(SMALL, alone, strict=True)
    ]
    assert told == [(done, 12) for done in range(1, 13)]
    assert multiprocessing.active_children() == []


@pytest.mark.parametrize("processes", [1, 2])
def test_an_error_in_a_run_ends_all(processes: int) -> None:
    """The error is raised unchanged, no process is left, and the long run next to it is stopped."""
    long = dataclasses.replace(SMALL[0], load=0.9)
    broken = dataclasses.replace(SMALL[0], arrivals="magic")
    told: list[int] = []
    cells = [broken, long] if processes == 1 else [long, broken]
    with pytest.raises(ValueError, match="unknown arrivals 'magic'"):
        run_cells(
            cells,
            ["fixed:0"],
            [1],
            requests=1_000_000,
            processes=processes,
            progress=lambda done, _: told.append(done),
        )
    assert told == []
    assert multiprocessing.active_children() == []


def test_an_interrupt_ends_all() -> None:
    """Ctrl-C at any point: here while progress is reported."""

    def interrupt(_done: int, _of: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_cells(SMALL, FEW, [1, 2, 3, 4], requests=200, processes=2, progress=interrupt)
    assert multiprocessing.active_children() == []


def test_a_process_that_is_killed_ends_all() -> None:
    """As when memory runs out: better no result than one that waits for ever."""

    def kill(_done: int, _of: int) -> None:
        for process in multiprocessing.active_children():
            process.kill()

    with pytest.raises(BrokenProcessPool):
        run_cells(SMALL, FEW, range(10), requests=200, processes=2, progress=kill)
    assert multiprocessing.active_children() == []


@pytest.fixture(autouse=True)
def handler() -> Iterator[None]:
    # A shell starts background jobs with SIGINT ignored, and the tests may be one.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_an_interrupt_waits_for_the_end_of_the_block() -> None:
    steps = []

    def block() -> None:
        with _interrupt_later():
            steps.append("nobody interrupts")
        with _interrupt_later():
            signal.raise_signal(signal.SIGINT)
            steps.append("block ended")

    with pytest.raises(KeyboardInterrupt):
        block()
    assert steps == ["nobody interrupts", "block ended"]


def test_other_threads_change_no_handlers() -> None:
    """Python allows that only in the main thread."""
    handlers = []

    def work() -> None:
        with _interrupt_later():
            handlers.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()

    assert handlers == [signal.getsignal(signal.SIGINT)]


@pytest.mark.parametrize(
    ("before", "after"), [(signal.default_int_handler, signal.SIG_DFL), (signal.SIG_IGN, signal.SIG_IGN)]
)
def test_a_process_ends_silently_unless_it_runs_in_the_background(before: Any, after: object) -> None:
    signal.signal(signal.SIGINT, before)
    _end_on_interrupt()

    assert signal.getsignal(signal.SIGINT) is after
