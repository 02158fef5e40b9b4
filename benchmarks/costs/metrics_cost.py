"""The cost of metrics: requests on the gateway's fast path with its metrics, and without.

``scripts/bench metrics`` runs it. Both alternate in one process, round by round. A request passes through the
whole gateway, the kernel included, except the frames to a worker; so the share is larger than that of a real
server.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import socket
import time
from collections.abc import Sequence
from functools import partial
from statistics import median
from typing import Any

import uvicorn
import uvloop
from rich.table import Table

from uncork.cli.terminal import show
from uncork_dispatcher import ApiRules, AsyncDispatcher, BatchResult, OnBatchEnd
from uncork_dispatcher.jobs import payloads_of
from uncork_dispatcher.requests.batch import Batch
from uncork_gateway.codecs import Marshalled, make_codec
from uncork_gateway.connection.listener_context import ListenerContext
from uncork_gateway.connection.protocol import HttpProtocol
from uncork_gateway.connection.route_table import RouteTable
from uncork_gateway.dialects import Native
from uncork_gateway.dialects.base import HandlerResult
from uncork_gateway.interfaces import BodyPool
from uncork_gateway.requests.api_route import ApiRoute
from uncork_gateway.requests.batch_headers import BatchHeaders
from uncork_gateway.telemetry.metrics import ApiTally, Metrics
from uncork_loadtests.intervals import Interval, median_interval

_BODY = b"[5.1, 3.5, 1.4, 0.2]"
_REQUEST = (
    b"POST /predict HTTP/1.1\r\nhost: bench\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b"
    % (len(_BODY), _BODY)
)
_WARM_UP = 5
_FOREVER_S = 86_400


def main() -> None:
    """Print microseconds of processor time per request, and the difference."""
    parser = argparse.ArgumentParser(description="Measure the cost of metrics on the fast path.")
    parser.add_argument("--rounds", type=int, default=201, help="measurements of each way (default 201)")
    parser.add_argument("--requests", type=int, default=1280, help="per measurement (default 1280)")
    options = parser.parse_args()
    table = Table(title="Processor time of a request in the gateway, without frames to a worker")
    columns = ("requests in a batch", "without metrics µs", "with metrics µs", "difference", "95 % interval")
    for column in columns:
        table.add_column(column, justify="right")
    for clients in (1, 8, 64):
        pairs = uvloop.run(rounds(clients, count=options.rounds, requests=options.requests))
        added = share(pairs)
        table.add_row(
            str(clients),
            *(f"{median(each):.2f}" for each in zip(*pairs, strict=True)),
            f"{added.median:+.1%}",
            f"{added.low:+.1%} to {added.high:+.1%}",
        )
    show([table])


async def rounds(clients: int, *, count: int, requests: int) -> list[tuple[float, float]]:
    """Return microseconds per request, silent and with metrics, of ``count`` rounds.

    All ``clients`` send together and are answered by one batch.
    """
    metrics = Metrics()
    ways = Way(clients, _SilentTally()), Way(clients, metrics.api("predict"), metrics)
    for way in ways:
        await way.open()
    pairs = []
    gc.collect()
    gc.freeze()  # as a server does
    for at in range(_WARM_UP + count):
        # The second one finds warmer caches, so the order alternates.
        order = ways if at % 2 else ways[::-1]
        cost = {way: await way.cost_us(requests) for way in order}
        if at >= _WARM_UP:
            pairs.append((cost[ways[0]], cost[ways[1]]))
    for way in ways:
        way.close()
    return pairs


def share(pairs: Sequence[tuple[float, float]]) -> Interval:
    """Return the relative increase from the first to the second of each pair."""
    return median_interval([ours / silent - 1 for silent, ours in pairs])


class Way:
    """Clients of an API route whose batches are answered at once."""

    def __init__(self, clients: int, tally: ApiTally, *observers: Metrics) -> None:
        routes, listener = RouteTable(), ListenerContext(pool=BodyPool(1000))
        dispatcher: AsyncDispatcher[Marshalled, HandlerResult] = AsyncDispatcher(
            self, observers=observers, bursts=listener.bursts
        )
        dispatcher.set_api(
            ApiRules(name="predict", policy="none" if clients == 1 else f"fixed:1000:{clients}")
        )
        dispatcher.worker_ready(0)
        route = ApiRoute(
            "predict",
            dialect=Native(make_codec({"kind": "json"})),
            dispatcher=dispatcher,
            tally=tally,
            max_body_bytes=1000,
            batch_headers=BatchHeaders("bench"),
        )
        routes.replace({b"/predict": route})
        http = uvicorn.Config(
            _no_app, lifespan="off", log_config=None, interface="asgi3", timeout_keep_alive=_FOREVER_S
        )
        http.load()
        state = uvicorn.Server(http).server_state
        self._ends: list[socket.socket] = []
        self._connection: Any = partial(
            HttpProtocol, routes, listener, config=http, server_state=state, app_state={}
        )
        self._count = clients

    async def open(self) -> None:
        for _ in range(self._count):
            ours, theirs = socket.socketpair()
            await asyncio.get_running_loop().connect_accepted_socket(self._connection, ours)
            self._ends.append(theirs)

    def close(self) -> None:
        for end in self._ends:
            end.close()

    async def cost_us(self, requests: int) -> float:
        """Return the mean processor time per request in the gateway's thread."""
        times = requests // self._count
        began = time.thread_time_ns()
        await asyncio.to_thread(self._ask, times)
        return (time.thread_time_ns() - began) / 1000 / (times * self._count)

    def _ask(self, times: int) -> None:
        for _ in range(times):
            for end in self._ends:
                end.send(_REQUEST)
            for end in self._ends:
                assert end.recv(4096).startswith(b"HTTP/1.1 200 ")

    # The dispatcher's runner

    def start(self, job: Batch[Any], ended: OnBatchEnd[HandlerResult]) -> None:
        """Answer each request with its own row."""
        rows = job.rows
        ran = BatchResult(
            [HandlerResult(200, asked.body) for asked in payloads_of(job)], chunks=[(rows, 0.001)]
        )
        asyncio.get_running_loop().call_soon(ended, ran)

    def abandon(self, batch: int, worker: int) -> None:
        """Never called."""


class _SilentTally(ApiTally):
    """Counts nothing."""

    def answered(self, *args: Any, **kwargs: Any) -> None:
        pass


async def _no_app(scope: Any, receive: Any, send: Any) -> None:
    raise AssertionError("all requests are to the API route")


if __name__ == "__main__":
    main()
