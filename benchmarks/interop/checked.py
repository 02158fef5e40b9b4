"""Concurrent clients with rows of their own, which check every answer."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import grpc
import httpx
from grpc import aio

from benchmarks.interop.dialects import Dialect
from benchmarks.peers.entrants import Work

# Clients send 1, 2, 3, 1, 2, 3, ... rows a request.
_MAX_ROWS = 3
_REQUESTS = 10
_TIMEOUT_S = 60.0
_HEADERS = {"Content-Type": "application/json"}

Send = Callable[[bytes], Awaitable[tuple[int, bytes]]]
"""Sends a request; returns the HTTP status of the answer, or what stands for it, and the answer.

Raises ConnectionError if there is no answer.
"""


@dataclass(frozen=True, kw_only=True)
class Question:
    """A request with its right answer."""

    request_id: str
    body: bytes
    right: Sequence[float]


@dataclass(frozen=True, kw_only=True)
class Checked:
    """The result of all requests."""

    requests: int
    wrong: list[str] = field(default_factory=list)
    """The fault of each wrong answer."""
    lost: list[str] = field(default_factory=list)
    """Why each lost request has no answer."""


def questions(work: Work, *, dialect: Dialect, client: int) -> list[Question]:
    """Return the requests of one client: always the same rows, each time with another id."""
    picked = [(client + more) % len(work.rows) for more in range(1 + client % _MAX_ROWS)]
    rows, right = [work.rows[n] for n in picked], [work.answers[n] for n in picked]
    ids = [f"{client}-{turn}" for turn in range(_REQUESTS)]
    return [Question(request_id=each, body=dialect.write(rows, each), right=right) for each in ids]


def fault(question: Question, *, dialect: Dialect, status: int, answer: bytes) -> str:
    """Return the fault of an answer, or ""."""
    if status != 200:
        return f"request {question.request_id} is answered {status}: {answer[:200]!r}"
    try:
        values = dialect.read(answer, question.request_id)
    except (LookupError, TypeError, ValueError) as error:
        return f"request {question.request_id} is answered {answer[:200]!r}: {error!r}"
    if values != list(question.right):
        return f"request {question.request_id} is answered {values}, right is {list(question.right)}"
    return ""


async def check(target: str, *, dialect: Dialect, work: Work, clients: int) -> Checked:
    """Send the requests of all clients concurrently; each client waits for its answers.

    Args:
        target: a URL, or the address of a gRPC server.
    """
    found, connect = Checked(requests=clients * _REQUESTS), _over_grpc if dialect.is_grpc else _over_http

    async def ask(client: int) -> None:
        for question in questions(work, dialect=dialect, client=client):
            try:
                status, answer = await senders[client](question.body)
            except ConnectionError as error:
                found.lost.append(f"request {question.request_id} has no answer: {error}")
                continue
            if wrong := fault(question, dialect=dialect, status=status, answer=answer):
                found.wrong.append(wrong)

    async with AsyncExitStack() as stack:
        senders = [await stack.enter_async_context(connect(target, dialect)) for _ in range(clients)]
        await asyncio.gather(*map(ask, range(clients)))
    return found


@asynccontextmanager
async def _over_http(url: str, dialect: Dialect) -> AsyncIterator[Send]:
    async with httpx.AsyncClient(timeout=_TIMEOUT_S, verify=False) as http:

        async def send(body: bytes) -> tuple[int, bytes]:
            try:
                reply = await http.post(url, content=body, headers=_HEADERS)
            except httpx.HTTPError as error:
                raise ConnectionError(repr(error)) from error
            return reply.status_code, reply.content

        yield send


@asynccontextmanager
async def _over_grpc(address: str, dialect: Dialect) -> AsyncIterator[Send]:
    # A connection for each client.
    options = [("grpc.use_local_subchannel_pool", 1)]
    async with aio.insecure_channel(address, options=options) as channel:
        method: Any = channel.unary_unary(dialect.path)

        async def send(body: bytes) -> tuple[int, bytes]:
            try:
                return 200, await method(body, timeout=_TIMEOUT_S)
            except aio.AioRpcError as error:
                if error.code() is grpc.StatusCode.UNAVAILABLE:
                    raise ConnectionError(error.details() or "UNAVAILABLE") from error
                return 500, f"{error.code().name}: {error.details()}".encode()

        yield send
