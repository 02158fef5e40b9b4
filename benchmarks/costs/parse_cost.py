"""The cost of one parse for a batch, compared with a parse for each of its requests.

``scripts/bench parse`` runs it; it prints docs/results/parse.md. The ways alternate in one process,
round by round. Times are processor times, because other programs may run.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Mapping, Sequence
from statistics import median
from typing import Any

from benchmarks.costs.parse_ways import CASES, Case
from benchmarks.harness.marks import at_least, ratios
from benchmarks.harness.report import ResultPage
from benchmarks.harness.sheets import Sheet, interval_text, text
from uncork_loadtests.intervals import median_interval

_SIZES = (1, 10, 100, 1000)
_JUDGED_SIZE = 100
_LEAST_NS = 5_000_000
PAGE = ResultPage(
    title="One parse for a batch",
    introduction="""
        The processor time that a worker saves by parsing the requests of a batch together. For conclusions,
        see [benchmarks](../explanation/benchmarks.md#against-no-batching).
    """,
    script="scripts/bench parse",
    packages=["pandas", "numpy", "msgspec"],
)
_PARAGRAPHS = (
    "Each request is one row of four floats, as a worker receives it.",
    """
    * *Merged*, as Uncork does it: one parse for the batch.
    * *Each alone*: the same adapter once per request; `pd.concat` or `np.concatenate` joins the frames or
      arrays.
    * *By hand*: a typed msgspec decoder per body, without the adapter's checks; the result is one frame, or
      stacked arrays.
    * *Parse* is the parse alone. *Batch* is all the work of a worker: parse, call a handler that returns the
      first column, write the answers.
    """,
    """
    Microseconds of processor time per batch, median over the rounds; ratios to merged, round by round, with
    the 95 % interval of their median.
    """,
)
_WORK: Mapping[str, Callable[[Case, str, Sequence[bytes]], Callable[[], Any]]] = {
    "parse": Case.parse,
    "batch": Case.execute,
}


def main() -> None:
    """Print docs/results/parse.md."""
    parser = argparse.ArgumentParser(description="Measure the gain of one parse for a batch.")
    parser.add_argument("--rounds", type=int, default=9, help="measurements of each (default 9)")
    rounds = parser.parse_args().rounds
    sheets = [sheet(case, rounds=rounds) for case in CASES]
    print(PAGE.text(paragraphs=_PARAGRAPHS, sheets=sheets), end="")


def sheet(case: Case, *, rounds: int) -> Sheet:
    """Measure a case, with a row per number of requests and kind of work."""
    merged, *others = case.ways
    columns = ["requests", "", f"{merged} µs"]
    for way in others:
        columns += [f"{way} µs", f"{way} / {merged}"]
    rows, notes = [], []
    for requests in _SIZES:
        for work in _WORK:
            times = _measure(case, work, requests=requests, rounds=rounds)
            row = [str(requests), work, text(median(times[merged]), digits=0)]
            for way in others:
                found = ratios(times[way], by=times[merged])
                row += [text(median(times[way]), digits=0), interval_text(median_interval(found))]
                if case.least_ratio and requests == _JUDGED_SIZE:
                    mark = at_least(case.least_ratio)
                    notes.append(
                        f"{work}, {requests} requests, {way} / {merged}: mark {mark}, {mark.state(found)}"
                    )
            rows.append(row)
    return Sheet(title=case.title, columns=columns, rows=rows, notes=notes)


def _measure(case: Case, work: str, *, requests: int, rounds: int) -> dict[str, list[float]]:
    """Return the microseconds of every way in every round."""
    bodies = case.bodies(requests)
    runs = {way: _WORK[work](case, way, bodies) for way in case.ways}
    times: dict[str, list[float]] = {way: [] for way in runs}
    for run in runs.values():
        run()
    for _ in range(rounds):
        for way, run in runs.items():
            times[way].append(_microseconds(run))
    return times


def _microseconds(run: Callable[[], Any]) -> float:
    """Return the mean of enough calls to measure."""
    calls, began, spent = 0, time.process_time_ns(), 0
    while spent < _LEAST_NS:
        run()
        calls += 1
        spent = time.process_time_ns() - began
    return spent / calls / 1000


if __name__ == "__main__":
    main()
