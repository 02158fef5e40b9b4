"""A client of bare ASGI applications, which can do what real clients do: send in pieces, and leave."""

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import Any, NamedTuple

from starlette.types import ASGIApp, Message

JSON = (b"content-type", b"application/json")
DISCONNECT: Message = {"type": "http.disconnect"}


class Reply(NamedTuple):
    """What the client got."""

    status: int
    headers: dict[str, str]
    body: bytes


class Client:
    """One request of one client: ``pieces`` of a body, after which it waits for the answer or leaves.

    More of an ``unfinished`` body is promised, but never comes.
    """

    def __init__(
        self,
        *pieces: bytes,
        headers: Sequence[tuple[bytes, bytes]] = (JSON,),
        unfinished: bool = False,
        address: tuple[str, int] | None = None,
    ) -> None:
        self._headers = list(headers)
        self._address = address
        self._to_come: deque[Message] = deque(
            {"type": "http.request", "body": piece, "more_body": unfinished or at < len(pieces)}
            for at, piece in enumerate(pieces, start=1)
        )
        self._left = asyncio.Event()
        self._sent: list[Message] = []
        self.received = 0

    def leave(self) -> None:
        """Close the connection."""
        self._left.set()

    async def ask(self, app: ASGIApp) -> Reply | None:
        """Send the request; the reply, or None if there was none."""
        scope = {
            "type": "http",
            "method": "POST",
            "path": "/",
            "headers": self._headers,
            "query_string": b"",
            "client": self._address,
        }
        await app(scope, self._receive, self._send)
        return self._reply()

    async def _receive(self) -> Message:
        self.received += 1
        if self._to_come:
            return self._to_come.popleft()
        await self._left.wait()
        return DISCONNECT

    async def _send(self, message: Message) -> None:
        self._sent.append(message)

    def _reply(self) -> Reply | None:
        if not self._sent:
            return None
        start, *bodies = self._sent
        assert start["type"] == "http.response.start"
        assert [body["type"] for body in bodies] == ["http.response.body"]
        headers: dict[str, str] = {}
        for name, value in start["headers"]:
            assert name == name.lower()
            assert name.decode() not in headers
            headers[name.decode()] = value.decode()
        body: Any = bodies[0]["body"]
        assert headers["content-length"] == str(len(body))
        return Reply(start["status"], headers, body)
