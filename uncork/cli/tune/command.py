"""``uncork tune``."""

from dataclasses import dataclass
from functools import partial

import typer

from uncork.cli.command import takes_plain_options
from uncork.cli.loadtest.measuring import measuring, require
from uncork.cli.loadtest.traffic import TrafficOptions, plan_of, refuse_contradictions, service_argument
from uncork.cli.terminal import print_error, show, telling, write_files
from uncork.cli.tune.tables import as_json, text
from uncork.cli.usage import in_options, refusals, require_writable
from uncork.config.option_fields import flags, option
from uncork_loadtests.traffic.plan import REPLAY
from uncork_loadtests.tuning.tune import TuningRequest
from uncork_loadtests.tuning.tune import tune as find
from uncork_workers.cores import usable_cores


@dataclass(frozen=True, slots=True, kw_only=True)
class TuneOptions(TrafficOptions):
    service: str = service_argument()
    goal_ms: float = option(..., "Latency goal in milliseconds that 99 % of requests must meet.")
    rate: float | None = option(
        None,
        "Average requests per second to plan for.",
        max=1_000_000,
        show_default=f"the recorded rate with {REPLAY}FILE, else the highest that meets the goal",
    )
    max_workers: int = option(4, "Maximum workers to recommend.", min=1, max=10_000)
    max_batch_size: int = option(256, "Largest batch to measure and recommend, in requests.", min=1)
    seconds: float | None = option(
        None,
        "Seconds of the load test that verifies the settings.",
        show_default="long enough for 1000 requests and a whole recording, from 5 to 60",
    )

    def request(self) -> TuningRequest:
        """Return the request; raise WrongUsage if options contradict each other or a value is wrong."""
        require("scipy", wanted_by="tune")
        refuse_contradictions(self.given)
        is_recorded = self.arrivals.startswith(REPLAY)
        # Without a rate, the plan's own does not count.
        plan = plan_of(self, rate=1.0 if self.rate is None and not is_recorded else self.rate)
        require_writable({"--json": self.json})
        try:
            return TuningRequest(
                target=self.service,
                plan=plan,
                goal_ms=self.goal_ms,
                rate=plan.average_rate if self.rate is None and is_recorded else self.rate,
                max_workers=self.max_workers,
                max_batch_size=self.max_batch_size,
                cores=usable_cores(),
                path=self.path,
                seconds=self.seconds,
            )
        except ValueError as error:
            raise in_options(error, flags("goal_ms", "rate", "seconds")) from None


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
