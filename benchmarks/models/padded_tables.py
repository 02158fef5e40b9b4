"""Text and tables about the contestants, with the ratios of `cork` to each other one."""

from collections.abc import Sequence
from statistics import fmean

import numpy as np

from benchmarks.harness.marks import ratio_interval
from benchmarks.harness.sheets import Sheet, interval_text, median_known, text
from benchmarks.models.padded import CORK, Cell, Run, Times
from uncork_loadtests.compare import Interval

_LEAST = 100
"""Requests for a p99: one of them is slower."""
_RESAMPLES = 999
_NAMES = {"onnx": "ONNX Runtime", "torch": "torch"}


def padded_paragraphs(cells: Sequence[Cell]) -> list[str]:
    """Describe the contestants, the figures and the answers."""
    agreements = " ".join(f"* {_title(cell)}: {cell.agreement}" for cell in cells)
    return [
        """
        Texts of different lengths: the same clients and rounds, one worker with one thread, batches of at
        most 16,384 tokens. A request is one text of 8 to 512 tokens, as JSON, with the number of tokens as
        its `cost`. The model masks padding. Each contestant is a whole gateway. They differ in the requests
        that share a batch:
        """,
        """
        * **cork**: the dispatcher's own rule.
        * **cork, no cost**: the same for an API without `cost`.
        * **cork, sum of costs**: lengths are hidden from the dispatcher; limit and estimate count the sum.
        * **FIFO, rows x longest**: in order of arrival as soon as the worker is free, up to a budget of
        rows x longest text, as in text-embeddings-inference.
        * **length buckets**: as soon as the worker is free, the oldest request with others of its bucket;
        buckets end at powers of two.
        """,
        """
        Latencies are percentiles over all rounds. Requests/s and rows/batch are medians over rounds. Padding
        is its share of the tokens that the worker computed. Ratios are those of `cork` to the contestant.
        """,
        agreements,
    ]


def cell_sheet(cell: Cell) -> Sheet:
    """Tabulate the contestants in a closed loop."""
    ours = cell.rounds[CORK.name]
    return Sheet(
        title=_title(cell),
        columns=[
            *("members", "req/s", "p50 ms", "p99 ms", "longest tenth: p99 ms", "rows/batch", "padding"),
            *("cork / this: req/s", "p99", "longest tenth: p99"),
        ],
        rows=[
            [name, *_figures(runs), *(_ratios(ours, by=runs) if name != CORK.name else ["-"] * 3)]
            for name, runs in cell.rounds.items()
        ],
        notes=cell.left_out,
    )


def _title(cell: Cell) -> str:
    return f"{_NAMES[cell.runtime]}, {cell.texts.name}"


def _figures(runs: Sequence[Run]) -> list[str]:
    return [
        text(median_known(run.requests_per_s for run in runs), digits=0),
        text(percentile([run.times for run in runs], 50), digits=0),
        text(percentile([run.times for run in runs], 99), digits=0),
        text(percentile([run.long_times for run in runs], 99), digits=0),
        text(median_known(run.rows_per_batch for run in runs), digits=1),
        f"{fmean(run.padding for run in runs):.0%}" if runs else "-",
    ]


def _ratios(ours: Sequence[Run], *, by: Sequence[Run]) -> list[str]:
    throughput = ratio_interval([run.requests_per_s for run in ours], by=[run.requests_per_s for run in by])
    return [
        interval_text(throughput),
        interval_text(percentile_ratio([run.times for run in ours], by=[run.times for run in by])),
        interval_text(percentile_ratio([run.long_times for run in ours], by=[run.long_times for run in by])),
    ]


def percentile(times: Sequence[Times], percent: float) -> float | None:
    """Return a percentile of the latencies of all rounds, by nearest rank; None if there are too few."""
    return None if sum(map(len, times)) < _LEAST else _percentile(times, percent)


def percentile_ratio(ours: Sequence[Times], *, by: Sequence[Times]) -> Interval | None:
    """Return the ratio of the p99 over all rounds, with its 95 % interval by bootstrap over the rounds.

    None if there are too few latencies, or a round without any. One p99 per round would be that of a few
    hundred requests.
    """
    own, other = percentile(ours, 99), percentile(by, 99)
    if own is None or other is None or not all(map(len, [*ours, *by])):
        return None
    picks = np.random.default_rng(0).integers(len(ours), size=(_RESAMPLES, len(ours)))
    found = [
        _percentile([ours[at] for at in rounds], 99) / _percentile([by[at] for at in rounds], 99)
        for rounds in picks
    ]
    low, high = np.quantile(found, [0.025, 0.975]).tolist()
    return Interval(median=own / other, low=low, high=high)


def _percentile(times: Sequence[Times], percent: float) -> float:
    return float(np.quantile(np.concatenate(times), percent / 100, method="inverted_cdf"))
