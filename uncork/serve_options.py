"""Options that all commands which serve have in common."""

from __future__ import annotations

import resource
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from uncork_gateway.patience import ClientLimits

_OTHER_FILES = 100


class LogLevel(StrEnum):
    """How much is logged."""

    debug = "debug"
    info = "info"
    warning = "warning"
    error = "error"


Host = Annotated[str, typer.Option(help="Address to listen on.")]
Port = Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0 takes a free one.")]
AdminHost = Annotated[str, typer.Option(help="Address to listen on for operators, with --admin-port.")]
AdminPort = Annotated[
    int | None,
    typer.Option(
        min=0,
        max=65535,
        help="Port for operators: metrics are only there, without TLS and keys.",
        show_default="they are at --port",
    ),
]
ApiKeyFile = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="Keys, one a line; clients must send one as Authorization: Bearer KEY or X-Api-Key: KEY.",
        show_default="everybody may ask",
    ),
]
TlsCert = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE", help="Certificate chain (PEM); clients then speak HTTPS.", show_default="plain HTTP"
    ),
]
TlsKey = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE", help="Key of --tls-cert (PEM), without a password.", show_default="in --tls-cert"
    ),
]
TlsClientCa = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="Authorities (PEM), one of which must have signed a client's certificate.",
        show_default="clients need none",
    ),
]
MaxBodyBytes = Annotated[int, typer.Option(min=1, help="Largest request body in bytes; larger ones get 413.")]
HeaderTimeout = Annotated[
    float,
    typer.Option(min=0.1, help="Seconds in which the head of a request must come; else 408."),
]
BodyTimeout = Annotated[
    float,
    typer.Option(min=0.1, help="Seconds; a body that brings less than 500 bytes/s over as long gets 408."),
]
MaxConnections = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="Connections of clients; more get 503.",
        show_default="10000, or 100 below the limit of open files",
    ),
]
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
DrainDelay = Annotated[
    float,
    typer.Option(
        min=0,
        help="Seconds that a stop goes on taking requests, not ready any more, for load balancers to notice.",
    ),
]
LogLevelOption = Annotated[LogLevel, typer.Option("--log-level", help="How much is logged.")]


def client_limits(
    *, header_timeout_s: float, body_timeout_s: float, max_connections: int | None
) -> ClientLimits:
    """What clients may take up. Connections must leave files for workers, or none could be replaced."""
    if max_connections is None:
        files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        unlimited = files == resource.RLIM_INFINITY
        most = ClientLimits().max_connections
        max_connections = most if unlimited else max(1, min(most, files - _OTHER_FILES))
    return ClientLimits(
        head_timeout_s=header_timeout_s, body_timeout_s=body_timeout_s, max_connections=max_connections
    )
