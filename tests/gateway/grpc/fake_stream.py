"""The stream of a call without a connection: it keeps what the call sends."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from uncork_gateway.front_end import FrontEnd
from uncork_gateway.grpc.interfaces import Call, CallConnection, CallHead
from uncork_gateway.grpc.statuses import Code
from uncork_gateway.headers import Header
from uncork_gateway.interfaces import BodyPool, Observers

if TYPE_CHECKING:
    from uncork_gateway.telemetry.traces import Traces


@dataclass(slots=True, kw_only=True)
class FakeObservers:
    """What records the calls of a connection."""

    access_log: bool = False
    traces: Traces | None = None


@dataclass(slots=True, kw_only=True)
class FakeConnection:
    """A client's connection, as calls see it."""

    number: int = 1
    observers: Observers = field(default_factory=FakeObservers)
    pool: BodyPool = field(default_factory=lambda: BodyPool(10_000_000))
    unsent_bytes: int = 0


@dataclass(slots=True, kw_only=True)
class FakeStream:
    """A stream whose client reads everything.

    Attributes:
        unsent_bytes: set it to pretend that the client does not read.
        metadata: the initial metadata, once it was sent.
        is_paused: whether the client may not send.
        messages: all messages that were sent.
        code, text, trailers: those of the end; ``code`` is None until then.
    """

    connection: CallConnection = field(default_factory=FakeConnection)
    lane: int = 0
    request_id: bytes = b"the-call"
    unsent_bytes: int = 0
    messages: list[bytes] = field(default_factory=list)
    metadata: tuple[Header, ...] | None = None
    is_paused: bool = False
    code: Code | None = None
    text: str = ""
    trailers: tuple[Header, ...] = ()
    _read: int = 0
    _news: asyncio.Event = field(default_factory=asyncio.Event)

    def begin(self, metadata: Sequence[Header]) -> None:
        assert not self.messages
        self.metadata = tuple(metadata)
        self._news.set()

    def pause(self) -> None:
        self.is_paused = True

    def resume(self) -> None:
        self.is_paused = False

    async def sent(self) -> None:
        while self.unsent_bytes:
            await self._change()

    def read_all(self) -> None:
        """Pretend that the client has read everything."""
        self.unsent_bytes = 0
        self._news.set()

    def reply(self, message: bytes, trailers: Sequence[Header], *, values: bytes = b"") -> None:
        self.send(message + values)
        self.finish(Code.OK, trailers=trailers)

    def send(self, message: bytes) -> None:
        if self.code is None:
            self.messages.append(message)
            self._news.set()

    def finish(self, code: Code, text: str = "", trailers: Sequence[Header] = ()) -> None:
        if self.code is None:
            self.code, self.text, self.trailers = code, text, tuple(trailers)
            self._news.set()

    @property
    def is_finished(self) -> bool:
        return self.code is not None

    async def next(self) -> bytes:
        """Wait for the next message; fail if the call ends first."""
        while self._read == len(self.messages):
            assert self.code is None, f"the call has ended: {self.code.name} {self.text}"
            await self._change()
        self._read += 1
        return self.messages[self._read - 1]

    async def end(self) -> Code:
        while self.code is None:
            await self._change()
        return self.code

    async def _change(self) -> None:
        self._news.clear()
        await self._news.wait()


def opened(
    front_end: FrontEnd, path: bytes, stream: FakeStream | None = None, **head: Any
) -> tuple[Call, FakeStream]:
    """Open a call of a gateway or a proxy."""
    assert front_end.open_call is not None
    stream = stream or FakeStream()
    return front_end.open_call(stream, CallHead(path, **head)), stream
