"""The streaming response that carries the dashboard's events."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing

from starlette.requests import ClientDisconnect
from starlette.responses import StreamingResponse
from starlette.types import Message, Send

_PATIENCE_S = 10.0
# A proxy must not buffer events.
HEADERS = {"cache-control": "no-store", "x-accel-buffering": "no", "x-content-type-options": "nosniff"}
MEDIA_TYPE = "text/event-stream"


class EventStream(StreamingResponse):
    """Sends server-sent events until they end, or the client disconnects or stops reading.

    A client that has stopped reading blocks the next frame, perhaps for hours: its operating system still
    acknowledges packets. After ten seconds the connection is aborted.
    """

    def __init__(self, frames: AsyncGenerator[bytes, None]) -> None:
        super().__init__(frames, headers=HEADERS, media_type=MEDIA_TYPE)
        self._frames = frames

    async def stream_response(self, send: Send) -> None:
        async def send_in_time(message: Message) -> None:
            async with asyncio.timeout(_PATIENCE_S):
                await send(message)

        async with aclosing(self._frames):
            try:
                await super().stream_response(send_in_time)
            except TimeoutError:
                raise ClientDisconnect from None
