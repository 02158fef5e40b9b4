# mypy: disable-error-code="import-not-found"
"""A naive static batcher in the server's own event loop: raw ASGI under uvicorn.

The first request of a batch opens a window of `wait_ms`; the batch runs when it is full or the window
is over, in a thread, one at a time. Without a window a batch is whatever is queued when the model is free.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

import peer_model
import uvicorn

Message = MutableMapping[str, Any]
Waiting = tuple[peer_model.Row, asyncio.Future[float]]


class StaticBatcher:
    """A minimal ASGI app that collects rows and runs them on the model, at most 64 at a time.

    POST reads a row and writes its answer; GET is answered with 200 and `null`.
    """

    def __init__(self, model: peer_model.Model, *, wait_s: float) -> None:
        self._model = model
        self._wait_s = wait_s
        self._queue: asyncio.Queue[Waiting] = asyncio.Queue()

    async def _ask(self, row: peer_model.Row) -> float:
        """Answer one row as part of a batch."""
        answer: asyncio.Future[float] = asyncio.get_running_loop().create_future()
        self._queue.put_nowait((row, answer))
        return await answer

    async def run(self) -> None:
        """Run one batch after the other until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            batch = await self._collect()
            rows = [row for row, _ in batch]
            answers = await loop.run_in_executor(None, self._model, rows)
            for (_, waiting), answer in zip(batch, answers, strict=True):
                if not waiting.done():  # its client may have left
                    waiting.set_result(answer)

    async def _collect(self) -> list[Waiting]:
        batch = [await self._queue.get()]
        until = asyncio.get_running_loop().time() + self._wait_s
        while len(batch) < peer_model.BATCH_CAP:
            try:
                batch.append(self._queue.get_nowait())
            except asyncio.QueueEmpty:
                try:
                    async with asyncio.timeout_at(until):
                        batch.append(await self._queue.get())
                except TimeoutError:
                    break
        return batch

    async def __call__(
        self,
        scope: MutableMapping[str, Any],
        receive: Callable[[], Awaitable[Message]],
        send: Callable[[Message], Awaitable[None]],
    ) -> None:
        """Answer one request."""
        answer = None
        if scope["method"] == "POST":
            message = await receive()
            body = message["body"]
            while message["more_body"]:
                message = await receive()
                body += message["body"]
            answer = await self._ask(json.loads(body))
        content = json.dumps(answer).encode()
        headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(content))]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": content})


async def main() -> None:
    """Serve until stopped."""
    options = peer_model.options()
    batcher = StaticBatcher(peer_model.load(options.model), wait_s=options.wait_ms / 1000)
    config = uvicorn.Config(
        batcher,
        host=peer_model.HOST,
        port=options.port,
        http="httptools",
        lifespan="off",
        log_level="warning",
        access_log=False,
    )
    running = asyncio.create_task(batcher.run())
    await uvicorn.Server(config).serve()
    running.cancel()


if __name__ == "__main__":
    import uvloop

    uvloop.run(main())
