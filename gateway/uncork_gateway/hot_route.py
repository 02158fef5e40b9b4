"""The way of a request: read, marshal, have it batched, reply. A raw ASGI callable, one per api."""

from __future__ import annotations

import logging
import math
import secrets
import time
from collections.abc import Callable
from typing import NamedTuple

from starlette.types import Receive, Scope, Send

from uncork_dispatcher import Answer, AsyncDispatcher, DispatchError
from uncork_gateway.codecs import Codec, Marshalled
from uncork_gateway.disconnect import ClientGone, DisconnectWatch
from uncork_gateway.errors import (
    BadRequest,
    BodyTooLarge,
    GatewayError,
    HandlerFailed,
    Headers,
    UnsupportedMediaType,
    from_dispatcher,
    problem,
)
from uncork_gateway.metrics import Metrics

log = logging.getLogger("uncork.gateway")

_CLIENT_GONE = 499
_JSON_TYPES = ("", "application/json")
_ERRORS_BY_STATUS: dict[int, type[GatewayError]] = {400: BadRequest}


class RowsReply(NamedTuple):
    """What a worker says to one request: rows of the answer, or the reason for another status than 200."""

    status: int
    body: bytes


class HotRoute:
    """Serves one api."""

    def __init__(
        self,
        api: str,
        *,
        codec: Codec,
        dispatcher: AsyncDispatcher[bytes, RowsReply],
        metrics: Metrics,
        max_body_bytes: int,
        batch_id: Callable[[int], str],
    ) -> None:
        self._api = api
        self._codec = codec
        self._dispatcher = dispatcher
        self._metrics = metrics
        self._max_body_bytes = max_body_bytes
        self._batch_id = batch_id

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, whatever becomes of it."""
        arrived = time.perf_counter()
        status = 200
        try:
            head = _read_head(scope)
            marshalled = self._codec.decode(await self._read_body(head, receive))
            answer = await self._answer(marshalled, head, receive)
            body = self._codec.encode(answer.result.body, single=marshalled.single)
            headers = self._provenance(answer)
            headers.append((b"content-type", b"application/json"))
        except ClientGone:
            self._metrics.request_answered(self._api, _CLIENT_GONE, time.perf_counter() - arrived)
            return
        except Exception as error:
            failure = error if isinstance(error, GatewayError) else _unexpected(error)
            status = failure.status
            body = problem(status, str(failure))
            headers = failure.headers()
            headers.append((b"content-type", b"application/problem+json"))
        headers.append((b"content-length", b"%d" % len(body)))
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})
        self._metrics.request_answered(self._api, status, time.perf_counter() - arrived)

    async def _answer(self, marshalled: Marshalled, head: _Head, receive: Receive) -> Answer[RowsReply]:
        try:
            with DisconnectWatch(receive):
                answer = await self._dispatcher.call(
                    self._api,
                    marshalled.body,
                    rows=marshalled.rows,
                    cost=marshalled.cost,
                    size_bytes=len(marshalled.body),
                    key=marshalled.key,
                    client_timeout_s=head.timeout_s,
                    source=head.client,
                )
        except DispatchError as error:
            raise from_dispatcher(error) from error
        if answer.result.status != 200:
            kind = _ERRORS_BY_STATUS.get(answer.result.status, HandlerFailed)
            raise kind(answer.result.body.decode())
        return answer

    async def _read_body(self, head: _Head, receive: Receive) -> bytes:
        if head.content_type not in _JSON_TYPES:
            raise UnsupportedMediaType(
                f"content type {head.content_type!r} is not accepted; send application/json"
            )
        if head.content_length > self._max_body_bytes:
            raise self._too_large()
        parts: list[bytes] = []
        size = 0
        more = True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise ClientGone
            parts.append(message.get("body", b""))
            size += len(parts[-1])
            if size > self._max_body_bytes:
                raise self._too_large()
            more = message.get("more_body", False)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _too_large(self) -> BodyTooLarge:
        return BodyTooLarge(f"the body is over the limit of {self._max_body_bytes} bytes")

    def _provenance(self, answer: Answer[RowsReply]) -> Headers:
        """Which batch the answer comes from, and where its time went."""
        batch = answer.batch
        timing = b"queue;dur=%.2f, batch;dur=%.2f" % (answer.held_s * 1000, batch.seconds * 1000)
        return [
            (b"x-batch-id", self._batch_id(batch.start.batch).encode()),
            (b"x-batch-size", b"%d" % batch.rows),
            (b"server-timing", timing),
        ]


def _unexpected(error: Exception) -> GatewayError:
    """A fault of ours: the client gets an id, under which the log has the rest."""
    error_id = secrets.token_hex(6)
    log.error("internal error [%s]", error_id, exc_info=error)
    return HandlerFailed(f"internal error; error id {error_id}")


class _Head(NamedTuple):
    """What the hot route needs to know before the body; ``client`` is the connection's other end."""

    content_type: str
    content_length: int
    timeout_s: float
    client: tuple[str, int] | None


def _read_head(scope: Scope) -> _Head:
    content_type = ""
    content_length = 0
    timeout_s = math.inf
    for name, value in scope["headers"]:
        if name == b"content-type":
            content_type = value.decode("latin-1").partition(";")[0].strip().lower()
        elif name == b"content-length":
            content_length = int(value)
        elif name == b"x-request-timeout-ms":
            timeout_s = _timeout_s(value)
    client = scope.get("client")
    return _Head(content_type, content_length, timeout_s, client and tuple(client))


def _timeout_s(value: bytes) -> float:
    try:
        timeout_ms = float(value)
    except ValueError:
        timeout_ms = math.nan
    if not timeout_ms > 0:
        raise BadRequest(
            f"X-Request-Timeout-Ms must be a number of milliseconds above 0, got {value.decode('latin-1')!r}"
        )
    return timeout_ms / 1000
