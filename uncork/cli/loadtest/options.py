"""The options of ``uncork loadtest``."""

from dataclasses import dataclass
from pathlib import Path

from uncork.cli.loadtest.measuring import require
from uncork.cli.loadtest.traffic import (
    NOWHERE,
    TLS_OPTIONS,
    is_url,
    load_fields,
    plan_of,
    refuse_contradictions,
    seconds_of,
)
from uncork.cli.loadtest.traffic_options import LoadOptions
from uncork.cli.usage import in_options, require_writable
from uncork.config.option_fields import argument, option
from uncork_loadtests.servers import words
from uncork_loadtests.traffic.plan import Plan
from uncork_loadtests.traffic.tls import Tls

SECONDS = 10.0
"""Measured time when none is given."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadtestOptions(LoadOptions):
    """The options of ``uncork loadtest``."""

    target: str = argument(
        ...,
        "http(s)://host:port/path, or a service as for serve (MODULE:SERVICE or FILE.py:SERVICE), which "
        "runs for the duration of the test.",
        metavar="TARGET",
    )
    seconds: float | None = option(
        None, "Measured time.", show_default=f"{SECONDS:g}; a recording without --rate: its length"
    )
    goal_ms: float | None = option(
        None, "Latency goal that answers are judged by.", show_default="that of the service, if it is ours"
    )
    ca: Path | None = option(
        None,
        "https: certificates to trust (PEM).",
        metavar="FILE",
        show_default="those that the system trusts",
    )
    insecure: bool = option(False, "https: trust any certificate.", "--insecure")
    cert: Path | None = option(None, "https: certificate chain of the client (PEM).", metavar="FILE")
    key: Path | None = option(
        None, "https: key of --cert (PEM), without a password.", metavar="FILE", show_default="in --cert"
    )
    policy: str | None = option(None, "Policy of the service.", show_default="as each api says, else cork")
    report: Path | None = option(None, "Write a page with pictures; one file of HTML.", metavar="FILE")
    png: Path | None = option(None, "Draw the pictures into a PNG.", metavar="FILE")

    @property
    def serve(self) -> list[str]:
        """Arguments of ``uncork serve`` for a service."""
        return words(
            {"--policy": self.policy, "--mb-max-latency": self.mb_max_latency, "--workers": self.workers}
        )

    def plan(self) -> Plan:
        """Return the plan; raise WrongUsage if options contradict each other or a value is wrong."""
        refuse_contradictions(self.given, target=self.target)
        plan = plan_of(
            self,
            url=self.target if is_url(self.target) else NOWHERE,
            tls=self._tls(),
            **load_fields(
                self, seconds=seconds_of(self, self.seconds, default=SECONDS), goal_ms=self.goal_ms
            ),
        )
        require_writable({"--json": self.json, "--report": self.report, "--png": self.png})
        if self.report is not None:
            require("plotly.graph_objects", wanted_by="--report")
        if self.png is not None:
            require("matplotlib.figure", wanted_by="--png")
        return plan

    def _tls(self) -> Tls:
        files = {"ca": self.ca, "cert": self.cert, "key": self.key}
        paths = {name: str(file) for name, file in files.items() if file is not None}
        tls = Tls(insecure=self.insecure, **paths)
        try:
            if tls != Tls():  # the system's certificates take time to load, also for http
                tls.context()
        except ValueError as error:
            raise in_options(error, TLS_OPTIONS) from None
        return tls
