"""The options that ``uncork loadtest``, ``compare`` and ``tune`` share."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from uncork_dispatcher.simulator import ARRIVALS
from uncork_loadtests.plan import REPLAY

JsonFile = Annotated[
    str | None,
    typer.Option(metavar="FILE", help="Write all figures as JSON; - prints them instead of the table."),
]
Service = Annotated[
    str,
    typer.Argument(metavar="SERVICE", help="The service as for serve: MODULE:SERVICE or FILE.py:SERVICE."),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class TrafficOptions:
    """The options of every command that puts traffic on a service.

    Attributes:
        given: the names of the options that are on the command line.
    """

    arrivals: Annotated[
        str,
        typer.Option(
            metavar="KIND",
            help=f"Open loop: {', '.join(ARRIVALS)}. A recorded file has seconds, one a line; with --rate it "
            "is stretched to that rate.",
        ),
    ] = "poisson"
    seed: Annotated[int, typer.Option(help="Decides the arrivals and random rows.")] = 1
    data: Annotated[
        Path | None, typer.Option(metavar="FILE", help="What to send: this file as the body.")
    ] = None
    lines: Annotated[
        Path | None, typer.Option(metavar="FILE", help="What to send: each line of this file in turn.")
    ] = None
    rows: Annotated[
        int, typer.Option(min=1, help="What to send: so many random rows in a request, with --shape.")
    ] = 1
    shape: Annotated[
        str | None,
        typer.Option(metavar="N,N...", help="What to send: random rows of numbers of this shape, as JSON."),
    ] = None
    value_range: Annotated[
        str | None,
        typer.Option(
            "--range",
            metavar="LOW,HIGH",
            help="Numbers in the rows of --shape: 0,255 for integers, 0.0,1.0 for other numbers.",
            show_default="bounds or example in the service's /openapi.json, else 0.0,1.0 or, for integers, "
            "0,9",
        ),
    ] = None
    function: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="What to send: MODULE:FUNCTION or FILE.py:FUNCTION, of a request's number, gives bytes, or "
            "bytes and the right answer.",
        ),
    ] = None
    expected: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="The right answer to --data; to --lines, one on each line."),
    ] = None
    content_type: Annotated[str, typer.Option(help="Content-Type of requests.")] = "application/json"
    header: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME:VALUE", help="A header field of every request; may be given again."),
    ] = None
    processes: Annotated[
        int, typer.Option(min=1, help="Generator processes; each needs a core when the rate is high.")
    ] = 1
    path: Annotated[
        str | None,
        typer.Option(help="Path of the service to post to.", show_default="the route of its first api"),
    ] = None
    json: JsonFile = None
    given: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadOptions(TrafficOptions):
    """The options of the commands whose traffic may also be a closed loop."""

    rate: Annotated[
        float | None,
        typer.Option(
            help="Open loop: requests per second, on average.",
            show_default=f"the recorded rate with {REPLAY}, else needed",
        ),
    ] = None
    clients: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Closed loop instead: clients that each wait for their answer.",
            show_default="open loop",
        ),
    ] = None
    think_ms: Annotated[
        float, typer.Option(min=0, help="Closed loop: pause after an answer, in milliseconds.")
    ] = 0.0
    warmup_seconds: Annotated[
        float,
        typer.Option(
            min=0,
            help="Discarded seconds before each measurement; an open loop warms up with Poisson arrivals.",
        ),
    ] = 1.0
    max_connections: Annotated[
        int, typer.Option(min=1, help="Open loop: most connections; beyond, requests wait for one.")
    ] = 1024
    workers: Annotated[int, typer.Option(min=1, help="Worker processes of each server of the service.")] = 1
    mb_max_latency: Annotated[
        float | None,
        typer.Option(
            help="Latency goal of the service in milliseconds.", show_default="as each api says, else 300"
        ),
    ] = None
