"""Options that commands which put traffic on a service have in common."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from uncork_dispatcher.simulator import ARRIVALS
from uncork_loadtests.traffic.plan import REPLAY

Service = Annotated[
    str,
    typer.Argument(metavar="SERVICE", help="The service as for serve: MODULE:SERVICE or FILE.py:SERVICE."),
]
Arrivals = Annotated[
    str,
    typer.Option(
        metavar="KIND",
        help=f"Open loop: {', '.join(ARRIVALS)}. A recorded file has seconds, one a line; with --rate it is "
        "stretched to that rate.",
    ),
]
Rate = Annotated[
    float | None,
    typer.Option(
        help="Open loop: requests per second, on average.",
        show_default=f"the recorded rate with {REPLAY}, else needed",
    ),
]
Clients = Annotated[
    int | None,
    typer.Option(
        min=1, help="Closed loop instead: clients that each wait for their answer.", show_default="open loop"
    ),
]
ThinkMs = Annotated[float, typer.Option(min=0, help="Closed loop: pause after an answer, in milliseconds.")]
Warmup = Annotated[
    float,
    typer.Option(
        min=0,
        help="Discarded seconds before each measurement; an open loop warms up with Poisson arrivals.",
    ),
]
Seed = Annotated[int, typer.Option(help="Decides the arrivals and random rows.")]
Data = Annotated[Path | None, typer.Option(metavar="FILE", help="What to send: this file as the body.")]
Lines = Annotated[
    Path | None, typer.Option(metavar="FILE", help="What to send: each line of this file in turn.")
]
Rows = Annotated[
    int, typer.Option(min=1, help="What to send: so many random rows in a request, with --shape.")
]
Shape = Annotated[
    str | None,
    typer.Option(metavar="N,N...", help="What to send: random rows of numbers of this shape, as JSON."),
]
Range = Annotated[
    str | None,
    typer.Option(
        "--range",
        metavar="LOW,HIGH",
        help="Numbers in the rows of --shape: 0,255 for integers, 0.0,1.0 for other numbers.",
        show_default="bounds or example in the service's /openapi.json, else 0.0,1.0 or, for integers, 0,9",
    ),
]
Function = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="What to send: MODULE:FUNCTION or FILE.py:FUNCTION, of a request's number, gives bytes, or "
        "bytes and the right answer.",
    ),
]
Expected = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="The right answer to --data; to --lines, one on each line."),
]
ContentType = Annotated[str, typer.Option(help="Content-Type of requests.")]
Header = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME:VALUE", help="A header field of every request; may be given again."),
]
Ca = Annotated[
    Path | None,
    typer.Option(
        "--ca",
        metavar="FILE",
        help="https: certificates to trust (PEM).",
        show_default="those that the system trusts",
    ),
]
Insecure = Annotated[bool, typer.Option("--insecure", help="https: trust any certificate.")]
Cert = Annotated[
    Path | None,
    typer.Option("--cert", metavar="FILE", help="https: certificate chain of the client (PEM)."),
]
Key = Annotated[
    Path | None,
    typer.Option(
        "--key",
        metavar="FILE",
        help="https: key of --cert (PEM), without a password.",
        show_default="in --cert",
    ),
]
Processes = Annotated[
    int, typer.Option(min=1, help="Generator processes; each needs a core when the rate is high.")
]
MaxConnections = Annotated[
    int, typer.Option(min=1, help="Open loop: most connections; beyond, requests wait for one.")
]
Route = Annotated[
    str | None,
    typer.Option("--path", help="Path of the service to post to.", show_default="the route of its first api"),
]
Workers = Annotated[int, typer.Option(min=1, help="Worker processes of each server of the service.")]
MbMaxLatency = Annotated[
    float | None,
    typer.Option(
        help="Latency goal of the service in milliseconds.", show_default="as each api says, else 300"
    ),
]
Json = Annotated[
    str | None,
    typer.Option(metavar="FILE", help="Write all figures as JSON; - prints them instead of the table."),
]
