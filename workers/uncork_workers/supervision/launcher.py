"""What the supervisor needs from whatever starts worker processes."""

import asyncio
import random
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from uncork_workers.wire.handshake import CERTIFICATE_VARIABLE, PROTOCOL, TOKEN_VARIABLE, launch_token

_JITTER = 0.25


@dataclass(slots=True, eq=False)
class WorkerProcess:
    """One process of a worker.

    Attributes:
        launch: identifies the process, also among those that have ended and those on other machines.
        ended: completes when the process has ended, with a description of how.
        pid: process id; None if the process does not run on this machine.
        batches: number of finished batches.
        lacked_memory: True if it has ended because the kernel killed it for lack of memory.
    """

    index: int
    launch: int
    ended: asyncio.Future[str]
    pid: int | None = None
    batches: int = 0
    lacked_memory: bool = False


class Starter(Protocol):
    """Starts worker processes of one service, all with the same settings."""

    def __call__(self, index: int, *, standby: bool = False) -> Awaitable[WorkerProcess]:
        """Start a process as :meth:`Launcher.launch` does."""
        ...


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
    """How workers reach the gateway: their arguments, and additional environment variables.

    ``launch_secret`` is that of the gateway's worker port; empty if the workers connect to a Unix socket.
    """

    arguments: Sequence[str]
    standby_arguments: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)
    launch_secret: bytes = b""

    def environment_of(self, launch: int) -> dict[str, str]:
        """Return the additional environment variables of one launch."""
        if not self.launch_secret:
            return dict(self.environment)
        return {**self.environment, TOKEN_VARIABLE: launch_token(self.launch_secret, launch).decode()}


def over_tcp(address: str, launch_secret: bytes, *, certificate: str = "") -> Dialing:
    """Return how workers reach the worker port of the gateway; they use TLS if it has a certificate (PEM)."""
    arguments = ("--gateway", address)
    return Dialing(
        arguments=arguments,
        standby_arguments=(*arguments, "--standby"),
        environment={CERTIFICATE_VARIABLE: certificate} if certificate else {},
        launch_secret=launch_secret,
    )


def over_unix(socket_path: str, standby_path: str) -> Dialing:
    """Return how workers on this machine reach the gateway; replacement workers use ``standby_path``."""
    # Their interpreter may have another version of Uncork. Over TCP, the handshake says so.
    protocol = ("--protocol", str(PROTOCOL))
    return Dialing(
        arguments=("--socket", socket_path, *protocol),
        standby_arguments=("--socket", standby_path, *protocol),
    )


def backoff_s(failures: int, *, first_s: float, longest_s: float) -> float:
    """Return the delay after a number of failures in a row, in seconds.

    It doubles with each failure, from ``first_s`` up to ``longest_s``, ±25 % at random so that workers do not
    retry in step.
    """
    # The cap avoids an overflow: 2.0 ** 1100 raises.
    mean_s = min(longest_s, first_s * 2.0 ** min(failures - 1, 30))
    return mean_s * random.uniform(1 - _JITTER, 1 + _JITTER)
