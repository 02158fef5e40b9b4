"""``uncork compare``."""

from dataclasses import dataclass
from functools import partial
from pathlib import Path

import typer

from uncork.cli.command import takes_plain_options
from uncork.cli.compare.tables import as_json, draw, tables
from uncork.cli.loadtest.measuring import measuring, require, require_page
from uncork.cli.loadtest.traffic import (
    LoadOptions,
    load_fields,
    plan_of,
    refuse_contradictions,
    seconds_of,
    service_argument,
)
from uncork.cli.terminal import INTERRUPTED, print_error, show, telling, write_files
from uncork.cli.usage import refusals, require_writable
from uncork.config.errors import WrongUsage
from uncork.config.option_fields import option
from uncork_dispatcher import make_policy
from uncork_loadtests.compare import Comparison
from uncork_loadtests.compare import compare as measure
from uncork_loadtests.servers import words
from uncork_loadtests.traffic.plan import Plan

_SECONDS = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class CompareOptions(LoadOptions):
    service: str = service_argument()
    policies: str = option(
        "cork,fixed:5,none",
        "Policies, as for `uncork serve`, separated by commas; the first is the baseline.",
        metavar="NAMES",
    )
    rounds: int = option(5, "Number of rounds; each measures every policy once.", min=1, max=10_000)
    seconds: float | None = option(
        None,
        "Seconds per measurement.",
        show_default=f"{_SECONDS:g}, or the length of a recording without --rate",
    )
    goal_ms: float | None = option(
        None,
        "Latency goal in milliseconds, to report the share of requests within it.",
        show_default="that of the API",
    )
    mb_max_batch_size: int | None = option(
        None, "Maximum rows per batch.", show_default="set per API, else 1000", min=1
    )
    plot: Path | None = option(
        None,
        "Write a page with a plot of all rounds; the name must end in .html.",
        metavar="FILE",
    )

    @property
    def names(self) -> list[str]:
        """The policies; raise WrongUsage if one is unknown, or there are fewer than two."""
        names = list(dict.fromkeys(name.strip() for name in self.policies.split(",")))
        try:
            for name in names:
                make_policy(name, limit_rows=1)
        except ValueError as error:
            raise WrongUsage(f"--policies: {error}") from None
        if len(names) < 2:
            raise WrongUsage(
                f"--policies takes two or more policies separated by commas, such as cork,none; got "
                f"{self.policies!r}"
            )
        return names

    @property
    def serve(self) -> list[str]:
        """Arguments of ``uncork serve`` for the service."""
        return words(
            {
                "--workers": self.workers,
                "--mb-max-latency": self.mb_max_latency,
                "--mb-max-batch-size": self.mb_max_batch_size,
            }
        )

    def plan(self) -> Plan:
        """Return the plan; raise WrongUsage if options contradict each other or a value is wrong."""
        require("scipy", wanted_by="compare")
        refuse_contradictions(self.given)
        seconds = seconds_of(self, self.seconds, default=_SECONDS)
        plan = plan_of(self, **load_fields(self, seconds=seconds, goal_ms=self.goal_ms))
        require_page("--plot", self.plot)
        require_writable({"--json": self.json, "--plot": self.plot})
        return plan


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
