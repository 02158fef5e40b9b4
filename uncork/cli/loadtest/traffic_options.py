"""The options that ``uncork loadtest``, ``compare`` and ``tune`` share."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from uncork.config.option_fields import argument, option
from uncork_dispatcher.simulator import ARRIVALS
from uncork_loadtests.traffic.plan import REPLAY


def json_option() -> Any:
    """Return the field of ``--json``."""
    return option(None, "Write all figures as JSON; - prints them instead of the table.", metavar="FILE")


def service_argument() -> Any:
    """Return the field of a required service."""
    return argument(..., "The service as for serve: MODULE:SERVICE or FILE.py:SERVICE.", metavar="SERVICE")


@dataclass(frozen=True, slots=True, kw_only=True)
class TrafficOptions:
    """The options of every command that puts traffic on a service.

    Attributes:
        given: the names of the options that are on the command line.
    """

    arrivals: str = option(
        "poisson",
        f"Open loop: {', '.join(ARRIVALS)}. A recorded file has seconds, one a line; with --rate it "
        "is stretched to that rate.",
        metavar="KIND",
    )
    seed: int = option(1, "Seed of arrivals and random rows.")
    data: Path | None = option(None, "What to send: this file as the body.", metavar="FILE")
    lines: Path | None = option(None, "What to send: each line of this file in turn.", metavar="FILE")
    rows: int = option(1, "What to send: this many random rows per request, with --shape.", min=1)
    shape: str | None = option(
        None, "What to send: random rows of numbers of this shape, as JSON.", metavar="N,N..."
    )
    value_range: str | None = option(
        None,
        "Numbers in the rows of --shape: 0,255 for integers, 0.0,1.0 for other numbers.",
        "--range",
        metavar="LOW,HIGH",
        show_default="bounds or example in the service's /openapi.json, else 0.0,1.0 or, for integers, 0,9",
    )
    function: str | None = option(
        None,
        "What to send: MODULE:FUNCTION or FILE.py:FUNCTION; gets a request's number, returns its body, or "
        "its body and the right answer.",
        metavar="NAME",
    )
    expected: Path | None = option(
        None, "The right answer to --data; to --lines, one on each line.", metavar="FILE"
    )
    content_type: str = option("application/json", "Content-Type of requests.")
    header: list[str] | None = option(
        None, "Header field of every request; repeat for more.", metavar="NAME:VALUE"
    )
    processes: int = option(1, "Generator processes; each needs a core when the rate is high.", min=1)
    path: str | None = option(
        None, "Path of the service to post to.", show_default="the route of its first api"
    )
    json: str | None = json_option()
    given: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadOptions(TrafficOptions):
    """The options of the commands whose traffic may also be a closed loop."""

    rate: float | None = option(
        None,
        "Open loop: requests per second, on average.",
        show_default=f"the recorded rate with {REPLAY}, else needed",
    )
    clients: int | None = option(
        None, "Closed loop instead: clients that each wait for their answer.", min=1, show_default="open loop"
    )
    think_ms: float = option(0.0, "Closed loop: pause after an answer, in milliseconds.", min=0)
    warmup_seconds: float = option(
        1.0, "Discarded seconds before each measurement; an open loop warms up with Poisson arrivals.", min=0
    )
    max_connections: int = option(1024, "Open loop: most connections; beyond, requests wait for one.", min=1)
    workers: int = option(1, "Worker processes of each server of the service.", min=1)
    mb_max_latency: float | None = option(
        None, "Latency goal of the service in milliseconds.", show_default="as each api says, else 300"
    )
