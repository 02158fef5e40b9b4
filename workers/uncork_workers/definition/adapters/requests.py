"""Requests with all that came with them, and answers that are each of its own kind."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, overload

from uncork_workers.definition.adapters.custom import Request, RequestAdapter
from uncork_workers.wire.schema import JSON


class RequestBatch(Sequence[Request]):
    """The requests of a batch: a sequence of them, and the same by what they have, in the same order."""

    def __init__(self, requests: Sequence[Request]) -> None:
        self._requests = requests

    @property
    def payloads(self) -> list[Any]:
        """The body of each request, by its content type; see :attr:`Request.payload`."""
        return [request.payload for request in self._requests]

    @property
    def queries(self) -> list[dict[str, str]]:
        """The parameters of the query of each request."""
        return [dict(request.query) for request in self._requests]

    @property
    def headers(self) -> list[dict[str, str]]:
        """The header fields of each request, names in lower case."""
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
    """A request is whatever a client sends; the handler gets all of a batch as a :class:`RequestBatch`.

    It returns a list with one result for each. A result is the answer to its request: bytes, text and
    ``Response`` as they are, anything else as JSON. A body that is not of its content type gets 400.
    """

    accepts = (JSON, "*")
    answers_each = True

    def handle_batch_request(self, requests: Sequence[Request]) -> RequestBatch:
        """All of them; their payloads are read here, where a bad one gets 400."""
        batch = RequestBatch(requests)
        _ = batch.payloads
        return batch
