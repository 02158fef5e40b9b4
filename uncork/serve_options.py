"""Options that all commands which serve have in common."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer


class LogLevel(StrEnum):
    """How much is logged."""

    debug = "debug"
    info = "info"
    warning = "warning"
    error = "error"


Host = Annotated[str, typer.Option(help="Address to listen on.")]
Port = Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0 takes a free one.")]
MaxBodyBytes = Annotated[int, typer.Option(min=1, help="Largest request body in bytes; larger ones get 413.")]
MaxQueueBytes = Annotated[
    int, typer.Option(min=1, help="Bytes of bodies held per api or model; requests beyond get 503.")
]
FairBy = Annotated[
    str | None,
    typer.Option(
        metavar="HEADER",
        help="Requests share the queues equally by the value of this header, so that one client does not "
        "crowd out the others; those without it count as one.",
        show_default="first come, first served",
    ),
]
DrainTimeout = Annotated[
    float, typer.Option(min=0, help="Seconds that a stop waits for what is held and what runs.")
]
LogLevelOption = Annotated[LogLevel, typer.Option("--log-level", help="How much is logged.")]
