"""The options of ``uncork loadtest``."""

from dataclasses import dataclass, replace
from pathlib import Path

from uncork.cli.loadtest.measuring import require_page
from uncork.cli.loadtest.traffic import (
    NOWHERE,
    TLS_OPTIONS,
    LoadOptions,
    is_url,
    load_fields,
    plan_of,
    refuse_contradictions,
    seconds_of,
)
from uncork.cli.usage import in_options, require_writable
from uncork.config.option_fields import argument, option
from uncork_loadtests.servers import words
from uncork_loadtests.targets import CLASS_HEADER
from uncork_loadtests.traffic.plan import Plan, Tls

SECONDS = 10.0
"""Measured time when none is given."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadtestOptions(LoadOptions):
    target: str = argument(
        ...,
        "URL to load, http(s)://host:port/path, or a service to run for the duration of the test, as "
        "MODULE:SERVICE or FILE.py:SERVICE. A gateway with a single API needs no path.",
        metavar="TARGET",
    )
    seconds: float | None = option(
        None, "Seconds to measure.", show_default=f"{SECONDS:g}, or the length of a recording without --rate"
    )
    goal_ms: float | None = option(
        None,
        "Latency goal in milliseconds, to report the share of requests within it.",
        show_default="that of the API, if TARGET is a service",
    )
    ca: Path | None = option(
        None,
        "HTTPS: CA certificates to trust (PEM).",
        metavar="FILE",
        show_default="those of the system",
    )
    insecure: bool = option(False, "HTTPS: accept any certificate.", "--insecure")
    cert: Path | None = option(None, "HTTPS: client certificate chain (PEM).", metavar="FILE")
    key: Path | None = option(
        None,
        "HTTPS: private key for --cert (PEM), unencrypted.",
        metavar="FILE",
        show_default="read from --cert",
    )
    request_class: str | None = option(
        None,
        "Class of the requests, of an API with classes. For both, run two load tests at a time.",
        "--class",
        metavar="NAME",
        show_default="the first",
    )
    policy: str | None = option(None, "Policy of the service.", show_default="set per API, else cork")
    report: Path | None = option(
        None, "Write a self-contained report with charts; the name must end in .html.", metavar="FILE"
    )

    @property
    def serve(self) -> list[str]:
        """Arguments of ``uncork serve`` for a service."""
        return words(
            {"--policy": self.policy, "--mb-max-latency": self.mb_max_latency, "--workers": self.workers}
        )

    def plan(self) -> Plan:
        """Return the plan; raise WrongUsage if options contradict each other or a value is wrong."""
        refuse_contradictions(self.given, target=self.target)
        named = () if self.request_class is None else (f"{CLASS_HEADER}:{self.request_class}",)
        plan = plan_of(
            replace(self, header=[*(self.header or ()), *named]),
            url=self.target if is_url(self.target) else NOWHERE,
            tls=self._tls(),
            **load_fields(
                self, seconds=seconds_of(self, self.seconds, default=SECONDS), goal_ms=self.goal_ms
            ),
        )
        require_page("--report", self.report)
        require_writable({"--json": self.json, "--report": self.report})
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
