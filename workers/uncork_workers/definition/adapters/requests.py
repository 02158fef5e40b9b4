"""The adapter for complete requests with complete responses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, overload

from uncork_workers.definition.adapters.custom import Request, RequestAdapter
from uncork_workers.wire.schema import JSON


class RequestBatch(Sequence[Request]):
    """The requests of a batch: a sequence of :class:`Request`, with views of one field across all of them."""

    def __init__(self, requests: Sequence[Request]) -> None:
        self._requests = requests

    @property
    def payloads(self) -> list[Any]:
        """The decoded body of each request; see :attr:`Request.payload`."""
        return [request.payload for request in self._requests]

    @property
    def queries(self) -> list[dict[str, str]]:
        """The query parameters of each request."""
        return [dict(request.query) for request in self._requests]

    @property
    def headers(self) -> list[dict[str, str]]:
        """The headers of each request, with names in lower case."""
        return [dict(request.headers) for request in self._requests]

    def __len__(self) -> int:
        return len(self._requests)

    @overload
    def __getitem__(self, at: int) -> Request: ...
    @overload
    def __getitem__(self, at: slice) -> RequestBatch: ...
    def __getitem__(self, at: int | slice) -> Request | RequestBatch:
        return RequestBatch(self._requests[at]) if isinstance(at, slice) else self._requests[at]


class Requests(RequestAdapter):
    """Accepts any request; the handler gets a :class:`RequestBatch` and returns a list with one result each.

    Each result is the complete response to its request: ``bytes``, ``str`` and ``Response`` as they are,
    anything else as JSON. A body that does not match its content type gets 400.
    """

    accepts = (JSON, "*")
    answers_each = True

    def handle_batch_request(self, requests: Sequence[Request]) -> RequestBatch:
        """Return the requests as a batch."""
        batch = RequestBatch(requests)
        _ = batch.payloads  # decodes the bodies here, where an invalid one gets 400
        return batch
