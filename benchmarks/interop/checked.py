"""Concurrent clients with rows of their own, which check every answer."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

import httpx

from benchmarks.interop.dialects import Dialect
from benchmarks.peers.entrants import Work

# Clients send 1, 2, 3, 1, 2, 3, ... rows a request.
_MAX_ROWS = 3
_REQUESTS = 10
_TIMEOUT_S = 60.0
_HEADERS = {"Content-Type": "application/json"}


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
    wrong: Sequence[str] = ()
    """The fault of each wrong answer."""
    lost: Sequence[str] = ()
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


async def check(url: str, *, dialect: Dialect, work: Work, clients: int) -> Checked:
    """Send the requests of all clients concurrently; each client waits for its answers."""
    limits = httpx.Limits(max_connections=clients, max_keepalive_connections=clients)
    async with httpx.AsyncClient(limits=limits, timeout=_TIMEOUT_S) as http:
        asked = [questions(work, dialect=dialect, client=client) for client in range(clients)]
        found = await asyncio.gather(*(_ask(each, url=url, dialect=dialect, http=http) for each in asked))
    return Checked(
        requests=sum(each.requests for each in found),
        wrong=[fault for each in found for fault in each.wrong],
        lost=[fault for each in found for fault in each.lost],
    )


async def _ask(asked: Sequence[Question], *, url: str, dialect: Dialect, http: httpx.AsyncClient) -> Checked:
    wrong, lost = [], []
    for question in asked:
        try:
            reply = await http.post(url, content=question.body, headers=_HEADERS)
        except httpx.HTTPError as error:
            lost.append(f"request {question.request_id} has no answer: {error!r}")
        else:
            wrong.append(fault(question, dialect=dialect, status=reply.status_code, answer=reply.content))
    return Checked(requests=len(asked), wrong=[*filter(None, wrong)], lost=lost)
