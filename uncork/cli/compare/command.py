"""``uncork compare``."""

from functools import partial

import typer

from uncork.cli.command import takes_plain_options
from uncork.cli.compare.options import CompareOptions
from uncork.cli.compare.plot import draw
from uncork.cli.compare.tables import as_json, tables
from uncork.cli.errors import print_error
from uncork.cli.loadtest.measuring import measuring
from uncork.cli.terminal import INTERRUPTED, show, telling, write_files
from uncork.cli.usage import refusals
from uncork_loadtests.compare import Comparison
from uncork_loadtests.compare import compare as measure


@takes_plain_options
def compare(options: CompareOptions) -> None:
    """Load a service under each policy in turn, with the same traffic, and compare the results.

    Each policy has its own server; only one is loaded at a time. A measurement is void if the load generator
    fell behind; it is repeated up to twice, then its round is discarded. The exit code is 1 if no round
    remains, a response is wrong, or none is successful.
    """
    with refusals("compare"):
        plan, policies = options.plan(), options.names
    with measuring("compare"), telling() as tell:
        comparison = measure(
            options.service,
            policies,
            plan,
            rounds=options.rounds,
            path=options.path,
            options=options.serve,
            tell=tell,
        )
    code = _show(comparison, options)
    raise typer.Exit(INTERRUPTED if comparison.rounds.interrupted else code)


def _show(comparison: Comparison, options: CompareOptions) -> int:
    pictures = []
    if options.plot is not None and comparison.results:
        pictures.append(partial(draw, comparison, options.plot))
    code = write_files("compare", options.json, partial(as_json, comparison), *pictures)
    if options.json != "-" and comparison.results:
        show(tables(comparison))
    for one in comparison.rounds.left_out:
        print_error("compare", f"round {one.number + 1} discarded: {one.policy}: {one.reason}")
    for fault in comparison.faults:
        print_error("compare", fault)
    return 1 if comparison.faults else code
