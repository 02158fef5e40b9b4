"""Runs a schedule, and collects what did not hold."""

from __future__ import annotations

import asyncio
import functools
import itertools
import logging
import random
import secrets
import time
from collections.abc import Collection
from types import SimpleNamespace

import httpcore._backends.anyio
import pytest

import uncork_gateway.batching
import uncork_gateway.connection.protocol
import uncork_gateway.gateway
import uncork_gateway.grpc.http2.stream
import uncork_gateway.mounted
import uncork_gateway.protocols.v2
import uncork_gateway.proxy
from tests.gateway.client import no_app
from tests.loops import CheckedLoop
from tests.simulation.draws import Draws
from tests.simulation.network import SimulatedLoop, Wedged
from tests.simulation.proxies import ProxySchedule
from tests.simulation.schedule import GatewaySchedule, Schedule
from uncork_dispatcher import AsyncDispatcher
from uncork_gateway.backends.model_servers.merged_calls import MergedCalls
from uncork_gateway.requests.coalescing import Coalescing


class _Log(logging.Handler):
    """Keeps what is logged with a traceback: an error of the gateway."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.errors: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info:
            self.errors.append(
                f"{record.getMessage()}\n{logging.Formatter().formatException(record.exc_info)}"
            )


class Outcome(SimpleNamespace):
    """What a schedule came to.

    Attributes:
        violations: what did not hold.
        trace: a digest of all that arrived anywhere, and when.
        statuses: how many responses had each status.
        names: what has happened.
    """


def run(seed: int, without: Collection[str] = ()) -> Outcome:
    """Run the schedule of a seed, without some of what happens in it."""
    draws, loop, log = Draws(seed, without), SimulatedLoop(), _Log()
    made: list[Schedule] = []

    async def main() -> None:
        is_of_proxy = draws.random("kind").random() < 0.2
        made.append((ProxySchedule if is_of_proxy else GatewaySchedule)(draws, loop))
        await made[0].run()

    violations = []
    with pytest.MonkeyPatch.context() as patch:
        _replace_clocks(patch, loop, seed)
        logger = logging.getLogger("uncork")
        patch.setattr(logger, "propagate", False)
        patch.setattr(logger, "handlers", [log])
        try:
            with asyncio.Runner(loop_factory=lambda: loop) as runner:
                runner.run(main())
        except (Wedged, Exception) as error:
            violations.append(f"the schedule did not end: {error!r}")
    violations += [*made[0].violations, *log.errors, *CheckedLoop.problems]
    CheckedLoop.problems.clear()
    trace = made[0].network.trace.hexdigest()
    return Outcome(violations=violations, trace=trace, statuses=made[0].statuses, names=list(draws.names))


def _replace_clocks(patch: pytest.MonkeyPatch, loop: SimulatedLoop, seed: int) -> None:
    """Replace clocks and random numbers, and the pages, which take long to make and which nobody opens."""
    for name in ("perf_counter", "monotonic", "time"):
        patch.setattr(time, name, loop.now)
    for made in (AsyncDispatcher, Coalescing):
        patch.setattr(uncork_gateway.batching, made.__name__, functools.partial(made, clock=loop.time))
    patch.setattr(uncork_gateway.proxy, "MergedCalls", functools.partial(MergedCalls, clock=loop.now))
    patch.setattr(uncork_gateway.protocols.v2, "uuid4", lambda: SimpleNamespace(hex="0" * 32))
    patch.setattr(httpcore._backends.anyio, "is_socket_readable", lambda socket: socket.end.is_readable)
    patch.setattr(secrets, "token_hex", lambda count: "0" * 2 * count)
    numbers = itertools.count()
    for module in (
        uncork_gateway.connection.protocol,
        uncork_gateway.grpc.http2.stream,
        uncork_gateway.mounted,
    ):
        patch.setattr(module, "new_request_id", lambda: b"id-%d" % next(numbers))
    pages = SimpleNamespace(app=no_app, admin_app=None, start=lambda: None, close=lambda: None)
    patch.setattr(uncork_gateway.gateway, "ServicePages", lambda *_, **__: SimpleNamespace(pages=pages))
    random.seed(seed)
