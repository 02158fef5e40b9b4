"""What the supervisor needs from whatever starts worker processes."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from uncork_workers.wire.handshake import CERTIFICATE_VARIABLE, TOKEN_VARIABLE


@dataclass(slots=True, eq=False)
class WorkerProcess:
    """One process of a worker.

    Attributes:
        launch: identifies the process, also among those that have ended and those on other machines.
        ended: completes when the process has ended, with a description of how.
        pid: process id; None if the process does not run on this machine.
        batches: number of finished batches.
    """

    index: int
    launch: int
    ended: asyncio.Future[str]
    pid: int | None = None
    batches: int = 0


class Launcher(Protocol):
    """Starts and kills worker processes."""

    @property
    def running(self) -> Mapping[int, WorkerProcess]:
        """The processes that have not ended, by launch."""

    async def launch(self, index: int, *, standby: bool = False) -> WorkerProcess:
        """Start the process of a worker; ``standby`` if it is to take over from another.

        Raises:
            OSError: if it cannot be started.
        """

    def kill(self, launch: int) -> None:
        """Kill a process; do nothing if it has ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialing:
    """How workers reach the gateway: their arguments, and additional environment variables."""

    arguments: Sequence[str]
    standby_arguments: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)


def over_tcp(address: str, token: bytes, *, certificate: str = "") -> Dialing:
    """Return how workers reach the worker port of the gateway; they use TLS if it has a certificate (PEM)."""
    arguments = ("--gateway", address)
    return Dialing(
        arguments=arguments,
        standby_arguments=(*arguments, "--standby"),
        environment={
            TOKEN_VARIABLE: token.decode(),
            **({CERTIFICATE_VARIABLE: certificate} if certificate else {}),
        },
    )


def over_unix(socket_path: str, standby_path: str) -> Dialing:
    """Return how workers on this machine reach the gateway; replacement workers use ``standby_path``."""
    return Dialing(arguments=("--socket", socket_path), standby_arguments=("--socket", standby_path))
