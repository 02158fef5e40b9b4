"""An API of the service as the destination of requests, for all protocols."""

from collections.abc import Sequence
from typing import ClassVar, NotRequired, TypedDict, Unpack

from mypy_extensions import mypyc_attr

from uncork_dispatcher import AsyncDispatcher, RequestResult, Waiter
from uncork_gateway.codecs import Grouping, Marshalled
from uncork_gateway.dialects.base import HandlerResult
from uncork_gateway.errors import Refused, Unavailable
from uncork_gateway.requests.batch_headers import BatchHeaders
from uncork_gateway.requests.classes import Classes
from uncork_gateway.requests.group_parts import Client, GroupParts, Submitted, submit
from uncork_gateway.requests.shadow import Shadow
from uncork_gateway.telemetry.metrics import ApiTally


class Shared(TypedDict):
    """The arguments that all targets of one API share."""

    dispatcher: AsyncDispatcher[Marshalled, HandlerResult]
    tally: ApiTally
    batch_headers: BatchHeaders
    grouping: NotRequired[Grouping | None]
    classes: NotRequired[Classes | None]


@mypyc_attr(allow_interpreted_subclasses=True)
class ApiTarget:
    """An API to which requests are submitted."""

    executor: ClassVar[str] = "worker"

    def __init__(self, api: str, **shared: Unpack[Shared]) -> None:
        self.api = api
        self.dispatcher = shared["dispatcher"]
        self.tally = shared["tally"]
        self.batch_headers = shared["batch_headers"]
        self.grouping = shared.get("grouping")
        self.classes = shared.get("classes")
        self.removed = False
        self.shadows: Sequence[Shadow] = ()
        """Get copies of the requests."""

    def remove(self) -> None:
        """Reject requests that are still arriving, because the API has been removed."""
        self.removed, self.tally, self.classes = True, ApiTally(), None

    def tally_of(self, bulk: bool) -> ApiTally:
        """Return the counts of a class of requests."""
        return self.classes.bulk_tally if bulk and self.classes is not None else self.tally

    def submit(
        self,
        waiter: Waiter[HandlerResult],
        payload: Marshalled,
        **client: Unpack[Client],
    ) -> Submitted:
        """Queue a request; return it, or its parts, for :meth:`cancel`.

        Raises:
            Unavailable: if the API was removed.
            RequestShed: if the request was shed at once.
        """
        if self.removed:
            raise Unavailable("this API was removed", reason="api_removed")
        for shadow in self.shadows:
            waiter = shadow.follow(waiter, payload, bulk=client.get("bulk", False))
        return submit(self.dispatcher, waiter, self.api, payload, **client)

    def cancel(self, submitted: Submitted) -> None:
        """Remove a request whose client has left."""
        if isinstance(submitted, GroupParts):
            submitted.withdraw()
        else:
            self.dispatcher.cancel(submitted)


def accepted(answer: RequestResult[HandlerResult]) -> HandlerResult:
    """Return a request's result from the dispatcher's.

    Raises:
        Refused: if the handler rejected the request.
    """
    result = answer.result
    if result.status != 200 and not result.content_type:
        raise Refused(result.body.decode(), result.status)
    return result
