"""The options of ``uncork compare``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from uncork.cli.loadtest.measuring import PICTURES, require, require_picture
from uncork.cli.loadtest.traffic import (
    load_fields,
    plan_of,
    refuse_contradictions,
    seconds_of,
    serve_arguments,
)
from uncork.cli.loadtest.traffic_options import LoadOptions, Service
from uncork.cli.usage import require_writable
from uncork.config.errors import WrongUsage
from uncork_dispatcher import make_policy
from uncork_loadtests.compare import Contest

_SECONDS = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class CompareOptions(LoadOptions):
    """The options of ``uncork compare``."""

    service: Service
    policies: Annotated[
        str,
        typer.Option(
            metavar="NAMES",
            help="Policies as for serve, with commas between them; the others are related to the first.",
        ),
    ] = "cork,fixed:5,none"
    rounds: Annotated[int, typer.Option(min=1, help="Measurements of each policy.")] = 5
    seconds: Annotated[
        float | None,
        typer.Option(
            help="Length of each measurement.",
            show_default=f"{_SECONDS:g}; a recording without --rate: its length",
        ),
    ] = None
    goal_ms: Annotated[
        float | None,
        typer.Option(help="Latency goal that answers are judged by.", show_default="that of the api"),
    ] = None
    mb_max_batch_size: Annotated[
        int | None,
        typer.Option(help="Most rows in a batch.", show_default="as each api says, else 1000"),
    ] = None
    plot: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help=f"Draw all rounds; the name ends in {', '.join(PICTURES)}."),
    ] = None

    def contest(self) -> Contest:
        """Check the options and return what they describe.

        Raises:
            WrongUsage: if they contradict each other, or a value is wrong.
        """
        require("scipy", wanted_by="compare")
        refuse_contradictions(self.given)
        seconds = seconds_of(self, self.seconds, default=_SECONDS)
        plan = plan_of(self, **load_fields(self, seconds=seconds, goal_ms=self.goal_ms))
        require_picture(self.plot)
        require_writable({"--json": self.json, "--plot": self.plot})
        serve = {
            "--workers": self.workers,
            "--mb-max-latency": self.mb_max_latency,
            "--mb-max-batch-size": self.mb_max_batch_size,
        }
        return Contest(
            target=self.service,
            policies=_policies(self.policies),
            plan=plan,
            rounds=self.rounds,
            path=self.path,
            options=serve_arguments(serve),
        )


def _policies(text: str) -> list[str]:
    names = list(dict.fromkeys(name.strip() for name in text.split(",")))
    try:
        for name in names:
            make_policy(name, limit_rows=1)
    except ValueError as error:
        raise WrongUsage(f"--policies: {error}") from None
    if len(names) < 2:
        raise WrongUsage(f"--policies takes two or more with commas between them, as cork,none; got {text!r}")
    return names
