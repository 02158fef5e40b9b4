"""Cells and policies that the options of ``uncork simulate`` describe."""

import math
from collections.abc import Callable
from random import Random
from typing import Any

from uncork.cli.loadtest.traffic import MOST_CLIENTS
from uncork.cli.usage import in_options
from uncork.config.errors import WrongUsage
from uncork.config.option_fields import flags
from uncork_dispatcher import make_policy
from uncork_dispatcher.simulator import ALL_POLICIES, Cell, open_loop, row_lengths
from uncork_dispatcher.simulator.cells import MOST_REQUESTS, requests_to_measure
from uncork_loadtests.traffic.plan import recorded

LOADS = "0.05,0.2,0.5,0.8,0.95"
"""Loads when none are given."""
FULL_ROWS = 64
"""Rows in a full batch when no limit is given; of average length if rows have lengths."""

# Errors of a cell name its fields.
_OPTIONS = {
    **flags("intercept_ms", "slope_ms", "workers", "goal_ms", "load", "clients", "round_trip_ms", "think_ms"),
    **flags("lengths", "padding", "prepare_ms", "transport_ms", "request_ms"),
    "noise_cv": "--noise",
    "limit_rows": "--max-batch-size",
}


def full_batch(lengths: str | None) -> int:
    """Return the most rows in a batch, or the most that their lengths add up to, when no limit is given.

    Raises:
        WrongUsage: if there are no such lengths.
    """
    if lengths is None:
        return FULL_ROWS
    try:
        return math.ceil(FULL_ROWS * row_lengths(lengths).mean)
    except ValueError as error:
        raise in_options(error, _OPTIONS) from None


def closed_cells(model: dict[str, Any], clients: str, **times_ms: float) -> list[Cell]:
    """Return one cell for each number of clients; ``times_ms`` are fields of :class:`Cell`.

    Raises:
        WrongUsage: if a number is malformed or out of range.
    """
    numbers = _numbers("--clients", clients, int, like="4,64")
    if (most := max(numbers)) > MOST_CLIENTS:
        raise WrongUsage(f"--clients must be from 1 to {MOST_CLIENTS}, got {most}")
    return [_cell(**model, clients=number, **times_ms) for number in numbers]


def open_cells(model: dict[str, Any], load: str | None, arrivals: str) -> list[Cell]:
    """Return one cell for each load; recorded arrivals without a load keep their rate.

    Raises:
        WrongUsage: if a number is malformed or out of range, or there are no such arrivals.
    """
    try:
        trace = recorded(arrivals)
        if not trace:
            open_loop(arrivals, rate=1.0, count=1, random_=Random(0))
    except OSError as error:
        raise WrongUsage(f"--arrivals {arrivals}: {error.strerror or error}") from None
    except ValueError as error:
        raise WrongUsage(f"--arrivals: {error}") from None
    if trace and load is None:
        rate = (len(trace) - 1) / (trace[-1] - trace[0])
        share = rate / _cell(**model, load=1.0).capacity
        try:
            return [Cell(**model, arrivals=arrivals, load=share)]
        except ValueError as error:
            raise WrongUsage(
                f"{arrivals} has {rate:g} requests per second: {error}; set --load to scale it"
            ) from None
    loads = _numbers("--load", LOADS if load is None else load, float, like="0.2,0.5,0.8")
    return [_cell(**model, arrivals=arrivals, load=share) for share in loads]


def _cell(**fields: Any) -> Cell:
    """Return a cell; errors are about options."""
    try:
        return Cell(**fields)
    except ValueError as error:
        raise in_options(error, _OPTIONS) from None


def _numbers(option: str, text: str, kind: Callable[[str], Any], *, like: str) -> list[Any]:
    """Parse numbers with commas between them, without duplicates."""
    try:
        return list(dict.fromkeys(kind(number) for number in text.split(",")))
    except ValueError:
        raise WrongUsage(
            f"{option} takes numbers separated by commas, such as {like}; got {text!r}"
        ) from None


def policy_names(given: list[str], *, limit_rows: int) -> list[str]:
    """Split names at commas, expand ``all``, and drop duplicates.

    Raises:
        WrongUsage: if there is no such policy.
    """
    names = [name.strip() for names in given for name in names.split(",")]
    for name in names:
        if name != "all":
            try:
                make_policy(name, limit_rows=limit_rows)
            except ValueError as error:
                raise WrongUsage(f"--policy: {error}, or all") from None
    return list(dict.fromkeys(one for name in names for one in (ALL_POLICIES if name == "all" else [name])))


def whole_traces(cells: list[Cell]) -> int | None:
    """Return a number of requests for whole passes over a recording, whose parts have other rates."""
    length = len(recorded(cells[0].arrivals))
    if not length:
        return None
    passes = math.ceil(max(map(requests_to_measure, cells)) / length)
    return length * max(1, min(passes, MOST_REQUESTS // length))
