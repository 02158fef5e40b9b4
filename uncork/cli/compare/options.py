"""The options of ``uncork compare``."""

from dataclasses import dataclass
from pathlib import Path

from uncork.cli.loadtest.measuring import PICTURES, require, require_picture
from uncork.cli.loadtest.traffic import (
    load_fields,
    plan_of,
    refuse_contradictions,
    seconds_of,
)
from uncork.cli.loadtest.traffic_options import LoadOptions, service_argument
from uncork.cli.usage import require_writable
from uncork.config.errors import WrongUsage
from uncork.config.option_fields import option
from uncork_dispatcher import make_policy
from uncork_loadtests.compare import Contest
from uncork_loadtests.servers import words

_SECONDS = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class CompareOptions(LoadOptions):
    """The options of ``uncork compare``."""

    service: str = service_argument()
    policies: str = option(
        "cork,fixed:5,none",
        "Policies as for serve, separated by commas; the others are compared with the first.",
        metavar="NAMES",
    )
    rounds: int = option(5, "Measurements of each policy.", min=1)
    seconds: float | None = option(
        None,
        "Length of each measurement.",
        show_default=f"{_SECONDS:g}; a recording without --rate: its length",
    )
    goal_ms: float | None = option(
        None, "Latency goal that answers are judged by.", show_default="that of the api"
    )
    mb_max_batch_size: int | None = option(
        None, "Most rows in a batch.", show_default="as each api says, else 1000"
    )
    plot: Path | None = option(
        None, f"Draw all rounds; the name ends in {', '.join(PICTURES)}.", metavar="FILE"
    )

    def contest(self) -> Contest:
        """Return the contest; raise WrongUsage if options contradict each other or a value is wrong."""
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
            options=words(serve),
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
