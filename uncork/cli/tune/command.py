"""``uncork tune``."""

from functools import partial

import typer

from uncork.cli.command import takes_plain_options
from uncork.cli.errors import print_error
from uncork.cli.loadtest.measuring import measuring
from uncork.cli.terminal import show, telling, write_files
from uncork.cli.tune.options import TuneOptions
from uncork.cli.tune.tables import as_json, text
from uncork.cli.usage import refusals
from uncork_loadtests.tuning.tune import tune as find


@takes_plain_options
def tune(options: TuneOptions) -> None:
    """Find settings that meet a latency goal, and verify them with a load test.

    Measures the batch times of the service by size, simulates policy cork with them, and load-tests the
    service with the recommended settings. The exit code is 1 if the goal cannot be met, or if the load test
    does not show that it is. Measured latencies that differ from the predicted ones by more than 30 % are a
    warning.
    """
    with refusals("tune"):
        request = options.request()
    with measuring("tune"), telling() as tell:
        tuned = find(request, tell=tell)
    code = write_files("tune", options.json, partial(as_json, tuned))
    if options.json != "-":
        show(text(tuned))
    for warning in tuned.warnings:
        print_error("tune", warning.clause)
    raise typer.Exit(1 if tuned.failures else code)
