"""The options that ``uncork loadtest``, ``compare`` and ``tune`` share."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from uncork.config.option_fields import argument, option
from uncork_dispatcher.simulator import ARRIVALS
from uncork_loadtests.traffic.plan import REPLAY

MOST_CLIENTS = 100_000


def json_option() -> Any:
    """Return the field of ``--json``."""
    return option(
        None, "Write the results as JSON to this file; - prints them instead of the tables.", metavar="FILE"
    )


def service_argument() -> Any:
    """Return the field of a required service."""
    return argument(..., "The service to run, as MODULE:SERVICE or FILE.py:SERVICE.", metavar="SERVICE")


@dataclass(frozen=True, slots=True, kw_only=True)
class TrafficOptions:
    """The options of every command that puts traffic on a service.

    Attributes:
        given: the names of the options that are on the command line.
    """

    arrivals: str = option(
        "poisson",
        f"Open loop: arrival process, one of {', '.join(ARRIVALS)}. A recording has one time in seconds per "
        "line; --rate scales it to that rate.",
        metavar="KIND",
    )
    seed: int = option(1, "Seed for arrivals and random rows.", min=0)
    data: Path | None = option(None, "Request body: the content of this file.", metavar="FILE")
    lines: Path | None = option(None, "Request bodies: one per line of this file.", metavar="FILE")
    rows: int = option(1, "Random rows per request, with --shape.", min=1, max=1_000_000)
    shape: str | None = option(
        None, "Request body: random rows of numbers of this shape, as JSON.", metavar="N,N..."
    )
    value_range: str | None = option(
        None,
        "Range of the numbers of --shape: 0,255 for integers, 0.0,1.0 for floats.",
        "--range",
        metavar="LOW,HIGH",
        show_default="from the service's /openapi.json, else 0.0,1.0, or 0,9 for integers",
    )
    function: str | None = option(
        None,
        "Request body: MODULE:FUNCTION or FILE.py:FUNCTION, a function that takes the number of a request "
        "and returns its body, or its body and the expected response.",
        metavar="NAME",
    )
    expected: Path | None = option(
        None, "Expected response to --data; to --lines, one per line.", metavar="FILE"
    )
    content_type: str = option("application/json", "Content-Type of requests.")
    header: list[str] | None = option(
        None, "Header to send with every request; may be repeated.", metavar="NAME:VALUE"
    )
    processes: int = option(1, "Load generator processes; at high rates, each needs a core.", min=1, max=1000)
    path: str | None = option(
        None,
        "Path to post to: the route of an API of the service, or /SERVICE/API.",
        show_default="the route of its first API",
    )
    json: str | None = json_option()
    given: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadOptions(TrafficOptions):
    """The options of the commands whose traffic may also be a closed loop."""

    rate: float | None = option(
        None,
        "Open loop: average requests per second.",
        max=1_000_000,
        show_default=f"the recorded rate with {REPLAY}FILE, else required",
    )
    clients: int | None = option(
        None,
        "Closed loop: number of clients, each of which sends its next request after the response to the "
        "last.",
        min=1,
        show_default="open loop",
        max=MOST_CLIENTS,
    )
    think_ms: float = option(
        0.0, "Closed loop: milliseconds that a client pauses after each response.", min=0
    )
    warmup_seconds: float = option(
        1.0, "Seconds of load before each measurement; an open loop warms up with Poisson arrivals.", min=0
    )
    max_connections: int = option(
        1024, "Open loop: maximum connections; further requests wait for a free one.", min=1, max=MOST_CLIENTS
    )
    workers: int = option(1, "Worker processes per server of the service.", min=1, max=10_000)
    mb_max_latency: float | None = option(
        None, "Latency goal of the service in milliseconds.", show_default="set per API, else 300"
    )
