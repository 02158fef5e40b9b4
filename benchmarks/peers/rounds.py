"""Write the measurements in files of ``scripts/bench peers --json`` as CSV, one line per server and round.

Latencies are in seconds, processor times in seconds per 1000 requests; void rounds have no figures.

    python -m benchmarks.peers.rounds light.json heavy.json > rounds.csv
"""

import argparse
import csv
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TextIO

from benchmarks.peers.contest import Point, WorkResult
from benchmarks.peers.report import read_results

_FIGURES = (
    "requests_per_second",
    "p50",
    "p99",
    "in_goal",
    "front_cpu",
    "all_cpu",
    "rows_per_batch",
    "refused",
)


def main() -> None:
    """Write the rounds of the files named on the command line to standard output."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peers.rounds", description=__doc__)
    parser.add_argument("files", nargs="+", type=Path, help="files of scripts/bench peers --json")
    write_rounds(read_results(parser.parse_args().files), sys.stdout)


def write_rounds(results: Iterable[WorkResult], to: TextIO) -> None:
    """Write the rounds of some models."""
    lines = csv.writer(to, lineterminator="\n")
    lines.writerow(["model", "load", "server", "round", *_FIGURES])
    for result in results:
        for point in result.points:
            lines.writerows(_lines(point))


def _lines(point: Point) -> Iterator[list[object]]:
    for server, rounds in point.rounds.items():
        for number, one in enumerate(rounds, start=1):
            figures = [None if one is None or one.void else getattr(one, name) for name in _FIGURES]
            yield [point.work, point.load, server, number, *map(_text, figures)]


def _text(figure: float | None) -> str:
    return "" if figure is None else f"{figure:.5g}"


if __name__ == "__main__":
    main()
