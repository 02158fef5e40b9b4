"""Runs the dispatcher's core and policies in virtual time, against simulated clients and workers.

* :func:`simulate` runs one :class:`Scenario` to its end (``scenario.py``, ``run.py``).
* :func:`measure` runs one policy in one :class:`Cell` of an experiment (``cells.py``, ``measure.py``).
* :func:`run_cells` compares policies in many cells, on all cores (``compare.py``, ``many.py``).
* :func:`row_lengths` describes rows of different lengths (``lengths.py``).
"""

from uncork_dispatcher.rules import SettingError
from uncork_dispatcher.simulator.cells import Cell
from uncork_dispatcher.simulator.compare import RELEASE_WHEN_FREE, Comparison, Ratio, Result
from uncork_dispatcher.simulator.lengths import LENGTHS, RowLengths, row_lengths
from uncork_dispatcher.simulator.many import ALL_POLICIES, run_cells
from uncork_dispatcher.simulator.measure import Measured, measure
from uncork_dispatcher.simulator.run import simulate
from uncork_dispatcher.simulator.scenario import Answered, Loss, Run, Scenario, SimulatedBatch
from uncork_dispatcher.simulator.service import ServiceTime
from uncork_dispatcher.simulator.traffic import ARRIVALS, Clients, open_loop

__all__ = [
    "ALL_POLICIES",
    "ARRIVALS",
    "LENGTHS",
    "RELEASE_WHEN_FREE",
    "Answered",
    "Cell",
    "Clients",
    "Comparison",
    "Loss",
    "Measured",
    "Ratio",
    "Result",
    "RowLengths",
    "Run",
    "Scenario",
    "ServiceTime",
    "SettingError",
    "SimulatedBatch",
    "measure",
    "open_loop",
    "row_lengths",
    "run_cells",
    "simulate",
]
