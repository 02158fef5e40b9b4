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
DrainTimeout = Annotated[
    float, typer.Option(min=0, help="Seconds that a stop waits for what is held and what runs.")
]
DrainDelay = Annotated[
    float,
    typer.Option(
        min=0,
        help="Seconds that a stop goes on taking requests, not ready any more, for load balancers to notice.",
    ),
]
LogLevelOption = Annotated[LogLevel, typer.Option("--log-level", help="How much is logged.")]
