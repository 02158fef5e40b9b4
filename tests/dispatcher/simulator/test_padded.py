"""The declared matrix of padded models."""

from __future__ import annotations

import itertools

from uncork_dispatcher.simulator.padded import CLIENTS, FIXED, UNLIKE, all_padded_cells, padded_cells


def test_the_matrix_is_complete() -> None:
    """Each model with each lengths, workers and traffic."""
    traffic = [
        *((load, "poisson", None) for load in (0.2, 0.5, 0.8)),
        (0.5, "onoff", None),
        *((None, "poisson", count) for count in CLIENTS),
    ]
    declared = set(itertools.product(UNLIKE, (0.16, 4.0, 20.0, 80.0), (1, 2, 4), traffic))
    cells = padded_cells()

    assert len(cells) == len(declared) == 4 * len(FIXED) * 3 * 7
    assert {
        (cell.lengths, cell.intercept_ms, cell.workers, (cell.load, cell.arrivals, cell.clients))
        for cell in cells
    } == declared
    assert {(cell.padding, cell.limit_rows, cell.known) for cell in cells} == {(1.0, 16_384, "costs")}


def test_it_has_models_that_pad_less_and_rows_that_need_no_padding() -> None:
    cells = all_padded_cells()
    counts = [sum(cell.padding == padding for cell in cells) for padding in (1.0, 0.5, 0.0)]

    assert counts == [336 + 16, 112, 112]
    assert sum(cell.lengths == "constant:64" for cell in cells) == 16
