"""The declared cells, and runs of many cells on several processes."""

from __future__ import annotations

import dataclasses
import itertools
import multiprocessing
from concurrent.futures.process import BrokenProcessPool

import pytest

from uncork_dispatcher.policies import POLICIES, make_policy
from uncork_dispatcher.simulator.cells import Cell
from uncork_dispatcher.simulator.compare import RELEASE_WHEN_FREE, compared
from uncork_dispatcher.simulator.many import ALL_POLICIES, run_cells
from uncork_dispatcher.simulator.matrix import (
    MATRICES,
    closed_cells,
    count_cells,
    goal_cells,
    open_cells,
    quick_cells,
    staggered_per_s,
)
from uncork_dispatcher.simulator.measure import measure

MODELS = [(1.0, 0.02), (5.0, 0.1), (5.0, 1.0), (40.0, 1.0)]
WORKERS = [1, 2, 4, 8]
NOISES = [0.0, 0.1, 0.3]
SMALL = [
    Cell(intercept_ms=5, slope_ms=0.1, noise_cv=0.1, workers=2, load=0.5),
    Cell(intercept_ms=5, slope_ms=0.1, workers=1, goal_ms=1e6, clients=8),
    Cell(intercept_ms=1, slope_ms=0.02, workers=1, load=0.8, arrivals="gamma:2"),
]
FEW = ["cork", "fixed:0"]


def shape(cell: Cell) -> tuple[tuple[float, float], float, int]:
    """Model, noise and workers of a cell."""
    return (cell.intercept_ms, cell.slope_ms), cell.noise_cv, cell.workers


# The declared cells


def test_the_open_matrix_is_complete() -> None:
    """Each model with each noise, workers, arrivals and load; but for a step that would overflow."""
    traffic = [
        *itertools.product(["poisson", "gamma:2", "gamma:4", "onoff"], [0.05, 0.2, 0.5, 0.8, 0.95]),
        *itertools.product(["step"], [0.05, 0.2, 0.5]),
    ]
    declared = {(shape, *one) for shape in itertools.product(MODELS, NOISES, WORKERS) for one in traffic}
    cells = open_cells()

    assert len(cells) == len(declared) == 4 * 3 * 4 * 23
    assert {(shape(cell), cell.arrivals, cell.load) for cell in cells} == declared
    assert {(cell.clients, cell.limit_rows, cell.goal_ms) for cell in cells} == {(None, 64, 1000.0)}


def test_the_closed_matrix_is_complete() -> None:
    declared = set(
        itertools.product(itertools.product(MODELS, NOISES, WORKERS), [1, 4, 16, 64, 256], [0.0, 5.0])
    )
    cells = closed_cells()

    assert len(cells) == len(declared) == 4 * 3 * 4 * 10
    assert {(shape(cell), cell.clients, cell.think_ms) for cell in cells} == declared
    assert {(cell.load, cell.limit_rows, cell.round_trip_ms) for cell in cells} == {(None, 64, 0.5)}


@pytest.mark.parametrize("policy", ALL_POLICIES)
def test_nothing_is_shed_in_a_closed_loop(policy: str) -> None:
    """However slow the model and however small the batches: 256 clients wait 10 s for single rows."""
    slowest = closed_cells(models=MODELS[-1:], workers=(1,), clients=(256,), thinks_ms=(0.0,), noises=(0.3,))
    seen = measure(slowest[0], policy, 1, requests=1000)

    assert (seen.answered, seen.shed, seen.inside_goal) == (1000, 0, 1.0)


def test_where_it_counts() -> None:
    """4 and 8 workers, medium loads, an intercept that matters."""
    declared = set(
        itertools.product(
            itertools.product([MODELS[0], MODELS[1], MODELS[3]], [0.0, 0.1], [4, 8]), [0.2, 0.5, 0.8]
        )
    )
    cells = count_cells()

    assert len(cells) == len(declared) == 36
    assert {(shape(cell), cell.load) for cell in cells} == declared
    assert {cell.arrivals for cell in cells} == {"poisson"}
    assert set(cells) <= set(open_cells())


def test_the_quick_ones_are_some_of_all() -> None:
    cells = quick_cells()

    assert len(set(cells) & set(open_cells())) == 8
    assert len(set(cells) & set(closed_cells())) == 8
    assert len(cells) == 16


def test_goals_that_bind() -> None:
    """Five times one row; loads around and above what staggered workers carry within that."""
    cells = goal_cells()

    assert len(cells) == len(set(cells)) == 4 * 2 * 4 * 5
    assert {shape(cell) for cell in cells} == set(itertools.product(MODELS, [0.0, 0.1], WORKERS))
    assert all(cell.goal_ms == pytest.approx(5 * (cell.intercept_ms + cell.slope_ms)) for cell in cells)
    for _, group in itertools.groupby(cells, key=shape):
        same = list(group)
        mark = {1: 0.85, 2: 0.87, 4: 0.90, 8: 0.93}[same[0].workers]
        shares = [cell.rate / staggered_per_s(cell) for cell in same]
        assert shares == pytest.approx([mark, 1, 1.2, 2, 4])


@pytest.mark.parametrize("noise", [0.0, 0.3])
def test_what_staggered_workers_carry(noise: float) -> None:
    """205 ms, half of them for waiting: 62.5 rows every 102.5 ms. With 2 workers full batches of 64."""
    one = Cell(intercept_ms=40, slope_ms=1, noise_cv=noise, goal_ms=205, load=1.0)

    assert staggered_per_s(one) == pytest.approx(62.5 / 0.1025)
    assert staggered_per_s(dataclasses.replace(one, workers=2)) == pytest.approx(2 * 64 / 0.104)
    with pytest.raises(ValueError, match="more than the goal"):
        staggered_per_s(dataclasses.replace(one, goal_ms=40))


def test_staggered_workers_have_a_known_capacity_for_equal_costs_only() -> None:
    cell = Cell(intercept_ms=5, slope_ms=1, load=0.5, lengths="lognormal:64:1")
    with pytest.raises(ValueError, match="for rows of equal cost only"):
        staggered_per_s(cell)


def test_the_matrices_have_names() -> None:
    """And no cell twice."""
    sizes = {name: len(set(cells())) for name, cells in MATRICES.items()}

    assert sizes == {
        "quick": 16,
        "count": 36,
        "open": 1104,
        "closed": 480,
        "clients": 160,
        "goal": 160,
        "padded": 576,
    }


def test_all_policies_can_be_made() -> None:
    assert {name.partition(":")[0] for name in ALL_POLICIES} == set(POLICIES)
    for name in ALL_POLICIES:
        assert make_policy(name, limit_rows=64).limit_rows >= 1


# Runs


@pytest.mark.parametrize("processes", [1, 2])
def test_results_come_in_order_of_the_cells(processes: int) -> None:
    """The same as cell by cell, however many processes; and every run is reported."""
    told: list[tuple[int, int]] = []
    found = run_cells(
        SMALL,
        FEW,
        [1, 2],
        requests=300,
        processes=processes,
        progress=lambda done, of: told.append((done, of)),
    )

    alone = [
        {policy: [measure(cell, policy, seed, requests=300) for seed in (1, 2)] for policy in FEW}
        for cell in SMALL
    ]
    assert found == [
        compared(cell, seen, base=RELEASE_WHEN_FREE) for cell, seen in zip(SMALL, alone, strict=True)
    ]
    assert told == [(done, 12) for done in range(1, 13)]
    assert multiprocessing.active_children() == []


def test_what_is_given_twice_is_measured_once() -> None:
    """A cell that is in two matrices has its result in both places, and progress comes to its end."""
    told: list[tuple[int, int]] = []
    found = run_cells(
        [SMALL[0], SMALL[1], SMALL[0]],
        ["fixed:0"],
        [1],
        requests=100,
        progress=lambda done, of: told.append((done, of)),
    )

    assert [one.cell for one in found] == [SMALL[0], SMALL[1], SMALL[0]]
    assert told == [(1, 2), (2, 2)]


@pytest.mark.parametrize("processes", [1, 2])
def test_no_cells_no_results(processes: int) -> None:
    assert run_cells([], FEW, [1], processes=processes) == []


def test_the_base_is_looked_for_before_anything_is_measured() -> None:
    """Rather than after hours."""
    told: list[int] = []
    with pytest.raises(ValueError, match="base policy 'none' is not among those measured: cork, fixed:0"):
        run_cells(SMALL, FEW, [1], base="none", requests=100, progress=lambda done, _: told.append(done))
    assert told == []


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
