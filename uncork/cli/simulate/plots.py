"""The plots of simulated comparisons of one model."""

from collections.abc import Callable, Sequence
from pathlib import Path

from uncork_dispatcher.simulator import RELEASE_WHEN_FREE, Cell, Comparison, Measured
from uncork_dispatcher.wording import plural
from uncork_loadtests.reports.page import Panel, Series, goal_line, looks, write_page


def draw(comparisons: Sequence[Comparison], path: Path) -> None:
    """Draw latency against load, or throughput against clients; raise OSError if that fails."""
    comparisons = sorted(comparisons, key=lambda one: (one.cell.clients or 0, one.cell.load or 0.0))
    cell = comparisons[0].cell
    panels = _throughput(comparisons) if cell.clients is not None else _latencies(comparisons)
    write_page(path, title=_title(cell), panels=panels)


def _throughput(comparisons: Sequence[Comparison]) -> list[Panel]:
    clients = [one.cell.clients or 0 for one in comparisons]
    return [
        Panel(
            title="Throughput",
            across="clients of a closed loop",
            up="rows per second",
            series=_lines(comparisons, clients, lambda one: one.rows_per_s),
            ticks={count: f"{count}" for count in clients},
        )
    ]


def _latencies(comparisons: Sequence[Comparison]) -> list[Panel]:
    loads = [one.cell.load or 0.0 for one in comparisons]
    kinds: dict[str, Callable[[Measured], float]] = {
        "Mean latency": lambda one: one.mean_ms,
        "99th percentile": lambda one: one.p99_ms,
    }
    drawn = {title: _lines(comparisons, loads, value) for title, value in kinds.items()}
    goal_ms = comparisons[0].cell.goal_ms
    return [
        Panel(
            title=title,
            across="load, as a share of the capacity in full batches",
            up="milliseconds",
            series=[*lines, *goal_line(goal_ms, loads, [ms for line in lines for ms in line.y])],
            log_up=True,
        )
        for title, lines in drawn.items()
    ]


def _lines(
    comparisons: Sequence[Comparison], across: Sequence[float], value: Callable[[Measured], float]
) -> list[Series]:
    """Return a line for each policy; fixed:0, to which the others are related, is dashed."""
    of = looks(result.policy for result in comparisons[0].results)
    return [
        Series(
            "dashes" if policy == RELEASE_WHEN_FREE else "line",
            across,
            [value(one.of(policy).average) for one in comparisons],
            colour,
            policy,
            symbol=symbol,
        )
        for policy, (colour, symbol) in of.items()
    ]


def _title(cell: Cell) -> str:
    parts = [f"{cell.intercept_ms:g} + {cell.slope_ms:g}n ms", plural(cell.workers, "worker")]
    if cell.clients is None:
        kind, _, detail = cell.arrivals.partition(":")
        parts.append(f"replay of {Path(detail).name}" if kind == "replay" else f"{cell.arrivals} arrivals")
    else:
        parts.append(f"round trip {cell.round_trip_ms:g} ms")
        parts += [f"think {cell.think_ms:g} ms"] if cell.think_ms else []
        parts += [f"{cell.request_ms:g} ms of work on each request"] if cell.request_ms else []
    return ", ".join(parts + ([f"noise {cell.noise_cv:g}"] if cell.noise_cv else []))
