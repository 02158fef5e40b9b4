"""A model behind the proxy as the destination of requests, whatever their protocol, and requests in parts."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Protocol

from uncork_dispatcher import AsyncDispatcher, RequestResult
from uncork_gateway.backends.model_servers.known_models import KnownModels
from uncork_gateway.backends.model_servers.merged_calls import CallResult, Part, Sent
from uncork_gateway.errors import BadGateway
from uncork_gateway.headers import TRACE, Header
from uncork_gateway.interfaces import Span
from uncork_gateway.protocols.wire import Content, Wire, WrongReply
from uncork_gateway.requests.answered_request import AnsweredRequest
from uncork_gateway.requests.batch_headers import BatchHeaders
from uncork_gateway.telemetry.metrics import ApiTally


@dataclass(frozen=True, kw_only=True, slots=True)
class HeaderRules:
    """How the headers, or the metadata, of merged requests are treated; names in lower case.

    Attributes:
        keyed: headers that may identify the caller. Requests that differ in one do not share a call, and the
            call has them.
        passed: the call has them as its first request does.

    All others are dropped: they concern one request, not a call for several.
    """

    keyed: frozenset[bytes] = frozenset((b"authorization", b"cookie", b"x-api-key"))
    passed: frozenset[bytes] = frozenset(TRACE)

    def sort(self, headers: Sequence[Header]) -> tuple[tuple[Header, ...], tuple[Header, ...]]:
        """Return the headers that are keyed, and those that a merged call has."""
        keyed = tuple(header for header in headers if header[0] in self.keyed)
        return keyed, keyed + tuple(header for header in headers if header[0] in self.passed)


@dataclass(frozen=True, kw_only=True, slots=True)
class Merging:
    """How requests become calls to the servers behind the proxy.

    Attributes:
        most_rows: most rows of a part of a request.
        fair_by: the header, in lower case, whose value names the flow of a request.
    """

    dispatcher: AsyncDispatcher[Sent, CallResult]
    models: KnownModels
    batch_headers: BatchHeaders
    header_rules: HeaderRules
    most_rows: int
    fair_by: bytes | None = None


@dataclass(eq=False, kw_only=True)
class ProxyTarget:
    """One target of the servers behind the proxy.

    Attributes:
        target: path and query, or the path of a gRPC method.
        model: the model that answers, as the client names it.
    """

    executor: ClassVar[str] = "model server"

    target: bytes
    model: str
    wire: Wire[Any, Any]
    merging: Merging

    @property
    def batch_headers(self) -> BatchHeaders:
        return self.merging.batch_headers

    @property
    def tally(self) -> ApiTally:
        return self.merging.models.tally(self.model)


class Caller(Protocol):
    """The request that parts belong to."""

    def answered(self, answer: RequestResult[CallResult]) -> None:
        """Accept the answer to the last part; or to any part, if it is the answer to the whole request."""

    def failed(self, error: Exception) -> None:
        """Accept the failure of a part."""


class RequestParts:
    """The parts of a request, of at most ``most_rows`` rows, and the replies to them."""

    def __init__(self, caller: Caller, target: ProxyTarget, request: Any) -> None:
        self._caller = caller
        self._target = target
        self._request = request
        self._parts: list[Any] = target.wire.cut(request, target.merging.most_rows)
        self._numbers: list[int] = []
        self._replies: dict[int, Any] = {}

    @property
    def rows(self) -> int:
        """The rows of all parts."""
        return sum(part.rows for part in self._parts)

    def submit(
        self,
        api: str,
        original: Content,
        *,
        keyed: tuple[Header, ...],
        sent: tuple[Header, ...],
        timeout_s: float,
        span: Span | None,
        source: Hashable,
        flow: Hashable,
    ) -> None:
        """Queue all parts.

        Args:
            api: that of the model in the dispatcher.
            original: the request as its client sent it.
            keyed: headers that requests in one call must have in common.
            sent: headers of a call that has one of the parts.
            timeout_s: the time for which the client waits.
            span: the request's span if it is traced.
            source: the client, as far as it can be told.
            flow: the flow of the request, where flows share a queue equally.

        Raises:
            RequestShed: if a part was shed at once.
        """
        target = self._target
        for at, part in enumerate(self._parts):
            payload = Sent(
                request=part,
                wire=target.wire,
                target=target.target,
                headers=sent,
                original=original if len(self._parts) == 1 else None,
                expires_at=time.monotonic() + timeout_s,
                span=span,
            )
            number = target.merging.dispatcher.submit(
                _PartWaiter(self, at),
                api,
                payload,
                rows=part.rows,
                size_bytes=part.size_bytes,
                key=(target.target, keyed, part.key),
                client_timeout_s=timeout_s,
                source=source,
                flow=flow,
            )
            self._numbers.append(number)

    def withdraw(self) -> None:
        """Cancel the parts that are not answered."""
        for number in self._numbers:
            self._target.merging.dispatcher.cancel(number)

    def joined(self, batch: int) -> Content:
        """Return the answer to the request, joined from the replies to its parts.

        Raises:
            BadGateway: if they do not fit together.
        """
        wire = self._target.wire
        try:
            joined = wire.join([self._replies[at] for at in range(len(self._parts))])
            return wire.render(joined, self._request, batch_id=self._target.batch_headers.id_of(batch))
        except WrongReply as error:
            raise BadGateway(str(error)) from error

    def part_answered(self, at: int, answer: RequestResult[CallResult]) -> None:
        if isinstance(answer.result, Part):
            self._replies[at] = answer.result.reply
            if len(self._replies) < len(self._parts):
                return
        self._caller.answered(answer)

    def part_failed(self, error: Exception) -> None:
        self._caller.failed(error)


class RequestInParts(AnsweredRequest):
    """A request to the servers behind the proxy: in parts, or relayed unchanged."""

    _parts: RequestParts | None = None
    _relaying: asyncio.Task[None] | None = None

    def _withdraw(self) -> None:
        if self._parts is not None:
            self._parts.withdraw()
        if self._relaying is not None:
            self._relaying.cancel()

    def failed(self, error: Exception) -> None:
        """Cancel the other parts, and answer with an error."""
        self._withdraw()
        super().failed(error)


class _PartWaiter(NamedTuple):
    """Passes the result of one part to its request."""

    parts: RequestParts
    at: int

    def answered(self, answer: RequestResult[CallResult]) -> None:
        self.parts.part_answered(self.at, answer)

    def failed(self, error: Exception) -> None:
        self.parts.part_failed(error)
