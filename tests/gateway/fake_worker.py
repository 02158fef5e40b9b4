"""A worker process as the gateway sees it: a connection to its Unix socket that speaks frames."""

from __future__ import annotations

import asyncio
import fcntl
import termios
from collections.abc import AsyncIterator, Sequence
from typing import Any, cast

from tests.loops import until
from uncork_workers.wire.forms import RowsForm
from uncork_workers.wire.frames import Frame, FrameDecoder, encode_frame
from uncork_workers.wire.messages import Batch, Goodbye, Hello, Message, Ping, Pong, Ready, Reply, TakeFile
from uncork_workers.wire.schema import ApiDescription, ApiSettings, ServiceDescription


def service(*apis: ApiDescription, name: str = "Fake") -> ServiceDescription:
    """A service with these APIs, or with one named ``echo`` that accepts JSON."""
    return ServiceDescription(name=name, apis=list(apis) or [json_api()])


def json_api(name: str = "echo", settings: ApiSettings | None = None) -> ApiDescription:
    settings = settings or ApiSettings()
    return ApiDescription(name=name, route=f"/{name}", input={"kind": "json"}, settings=settings)


def array_api(
    name: str = "echo", *, dtype: str = "float32", shape: Sequence[int | None] = (4,), **settings: Any
) -> ApiDescription:
    """An API that accepts arrays, by default of four numbers."""
    takes = {"kind": "ndarray", "dtype": dtype, "shape": list(shape)}
    return ApiDescription(name=name, route=f"/{name}", input=takes, settings=ApiSettings(**settings))


class FakeWorker:
    """One worker, which acts only on request."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._frames = self._receive()

    @classmethod
    async def connect(cls, socket_path: str) -> FakeWorker:
        return cls(*await asyncio.open_unix_connection(socket_path))

    @classmethod
    async def ready(
        cls, socket_path: str, *, index: int = 0, launch: int = 1, serves: ServiceDescription | None = None
    ) -> FakeWorker:
        worker = await cls.connect(socket_path)
        worker.send(Hello(index=index, launch=launch, service=serves or service()))
        worker.send(Ready())
        return worker

    def send(self, message: Message, bodies: Sequence[bytes] = ()) -> None:
        self.send_bytes(encode_frame(message, bodies))

    def send_bytes(self, data: bytes) -> None:
        self._writer.write(data)

    async def batch(self) -> tuple[Batch, bytes]:
        message, payload = await self.frame()
        while isinstance(message, Ping):  # after ten seconds, on a slow machine
            self.send(Pong())
            message, payload = await self.frame()
        assert isinstance(message, Batch)
        return message, payload

    async def frame(self) -> Frame:
        return await anext(self._frames)

    async def next(self) -> Message:
        return (await anext(self._frames)).message

    def answer(
        self,
        batch: Batch,
        bodies: Sequence[bytes],
        *,
        statuses: Sequence[int] | None = None,
        worked: bool = True,
        chunks: Sequence[tuple[float, float]] | None = None,
        forms: Sequence[RowsForm] = (None,),
        limit: float | None = None,
        memory_failures: int = 0,
        cancelled: bool = False,
        **recorded: Any,
    ) -> None:
        """Reply to a batch: by default every request succeeded, in one call, and recorded nothing."""
        reply = Reply(
            batch=batch.batch,
            worked=worked,
            seconds=0.001,
            statuses=list(statuses or [200] * len(bodies)),
            lengths=[len(body) for body in bodies],
            chunks=[(sum(batch.costs or batch.rows), 0.001)] if chunks is None else list(chunks),
            forms=tuple(forms),
            limit=limit,
            memory_failures=memory_failures,
            cancelled=cancelled,
            **recorded,
        )
        self.send(reply, bodies)

    async def delivered(self) -> None:
        """Wait until all that was sent can be read at the other end, which TCP may delay."""
        connection = self._writer.get_extra_info("socket")
        await until(lambda: fcntl.ioctl(connection, termios.TIOCOUTQ, bytes(4)) == bytes(4))

    def stop_reading(self) -> None:
        """Read nothing more, like a process behind a broken network."""
        cast("asyncio.Transport", self._writer.transport).pause_reading()

    async def dropped(self) -> None:
        """Wait until the gateway closes the connection; fail if it sends anything."""
        assert [frame async for frame in self._frames] == []
        self.close()

    async def dismissed(self) -> Goodbye:
        """Wait until the gateway closes the connection; return why it says that it does."""
        [(goodbye, _)] = [frame async for frame in self._frames]
        assert isinstance(goodbye, Goodbye)
        self.close()
        return goodbye

    def close(self) -> None:
        self._writer.close()

    async def _receive(self) -> AsyncIterator[Frame]:
        decoder = FrameDecoder()
        while data := await self._reader.read(65536):
            for frame in decoder.feed(data):
                # The file itself is lost: these workers get large batches only over TCP.
                if not isinstance(frame.message, TakeFile):
                    yield frame
