"""An API of the service as the destination of requests, for all protocols."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, NotRequired, TypedDict, Unpack

from msgspec.structs import replace
from mypy_extensions import mypyc_attr

from uncork_dispatcher import AsyncDispatcher, RequestResult
from uncork_gateway.codecs import Grouping, Marshalled
from uncork_gateway.dialects.base import HandlerResult
from uncork_gateway.errors import Refused, Unavailable
from uncork_gateway.headers import REQUEST_ID, Header, combined
from uncork_gateway.requests.batch_headers import BatchHeaders
from uncork_gateway.requests.classes import Classes
from uncork_gateway.requests.coalescing import CoalescedRequest, Coalescing
from uncork_gateway.requests.parts import ApiSubmission, Submitted, cancel, submit
from uncork_gateway.requests.shadow import Shadow
from uncork_gateway.telemetry.metrics import ApiTally

if TYPE_CHECKING:
    from uncork_gateway.telemetry.traces import RequestSpan


class Shared(TypedDict):
    """The arguments that all targets of one API share."""

    dispatcher: AsyncDispatcher[Marshalled, HandlerResult]
    tally: ApiTally
    batch_headers: BatchHeaders
    contract: int
    grouping: NotRequired[Grouping | None]
    classes: NotRequired[Classes | None]
    coalescing: NotRequired[Coalescing | None]
    headers: NotRequired[tuple[str, ...]]


@mypyc_attr(allow_interpreted_subclasses=True)
class ApiTarget:
    """An API to which requests are submitted."""

    def __init__(self, api: str, **shared: Unpack[Shared]) -> None:
        self.api = api
        self.dispatcher = shared["dispatcher"]
        self.tally = shared["tally"]
        self.batch_headers = shared["batch_headers"]
        self.contract = shared["contract"]
        self.grouping = shared.get("grouping")
        self.classes = shared.get("classes")
        self.coalescing = shared.get("coalescing")
        self.headers = frozenset(map(str.encode, shared.get("headers", ())))
        """The headers that the handler may read."""
        self.shadows: Sequence[Shadow] = ()
        """Get copies of the requests."""

    def tally_of(self, bulk: bool) -> ApiTally:
        return self.classes.bulk_tally if bulk and self.classes is not None else self.tally

    def values_of(self, headers: Sequence[Header]) -> tuple[tuple[str, str], ...]:
        """Return the headers that the handler may read, except X-Request-Id."""
        if not self.headers:
            return ()
        found = combined(headers, self.headers - {REQUEST_ID})
        return tuple([(name.decode(), value.decode("latin-1")) for name, value in found.items()])

    def complete(
        self,
        payload: Marshalled,
        *,
        group: tuple[bytes, ...],
        values: tuple[tuple[str, str], ...],
        request_id: bytes,
        span: RequestSpan | None,
    ) -> Marshalled:
        """Return a request with its span, the headers that the handler may read, and its group.

        Without these, a request is complete.

        ``group`` has the texts of the values of ``group_by`` that come from headers.
        """
        if span is not None:
            span.set_attribute("uncork.rows", payload.rows)
            payload = replace(payload, span=span)
        if self.headers:
            own_id = request_id.decode() if REQUEST_ID in self.headers else ""
            payload = replace(payload, headers=values, request_id=own_id)
        return payload if self.grouping is None else self.grouping.complete(payload, group)

    def submit(self, asked: ApiSubmission, credentials: Hashable) -> Submitted | CoalescedRequest:
        """Queue a request, or let it join an identical one; return it, or its parts, for :meth:`cancel`.

        ``credentials`` identify the client. A request in parts joins none.

        Raises:
            Unavailable: if the API was removed.
            RequestShed: if the request was shed at once.
        """
        if self.tally.removed:
            raise Unavailable("this API was removed", reason="api_removed")
        if self.coalescing is not None and not asked.payload.parts:
            return self.coalescing.submit(self._begin, asked, credentials)
        return self._begin(asked) if self.shadows else submit(self.dispatcher, asked)

    def _begin(self, asked: ApiSubmission) -> Submitted:
        copies = [shadow.follow(asked) for shadow in self.shadows]
        try:
            return submit(self.dispatcher, asked)
        except Exception:
            for copy in copies:
                copy.cancel()
            raise

    def cancel(self, submitted: Submitted | CoalescedRequest) -> int | None:
        """Remove a request whose client has left; return the number of the batch that runs it, if known."""
        if isinstance(submitted, CoalescedRequest):
            return submitted.withdraw()
        return cancel(self.dispatcher, submitted)


def accepted(answer: RequestResult[HandlerResult]) -> HandlerResult:
    """Return a request's result from the dispatcher's.

    Raises:
        Refused: if the handler rejected the request.
    """
    result = answer.result
    if result.status != 200 and not result.content_type:
        raise Refused(result.body.decode(), result.status)
    return result
