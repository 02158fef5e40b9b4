"""Calls to APIs over gRPC: unary calls, and the common part of these and of the requests in a stream."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from uncork_dispatcher import RequestResult
from uncork_gateway.codecs import Marshalled, Sink
from uncork_gateway.dialects.base import HandlerResult
from uncork_gateway.grpc.answered_call import AnsweredCall, UnaryRequest
from uncork_gateway.grpc.infer_method import InferMethod, MessageRoute
from uncork_gateway.grpc.interfaces import CallHead, CallStream
from uncork_gateway.grpc.statuses import CallFailed, Code
from uncork_gateway.headers import Header, value_of
from uncork_gateway.requests.api_target import accepted
from uncork_gateway.requests.coalescing import credentials_of
from uncork_gateway.requests.parts import submission_of
from uncork_gateway.telemetry.metrics import ApiTally


class ApiCall(AnsweredCall):
    """One request message. The dispatcher calls ``answered`` or ``failed`` when it ends.

    Attributes:
        place: a number that no other open request of the stream has.
    """

    place = 0
    _payload: Marshalled
    _route: MessageRoute | None = None
    _bulk = False

    def __init__(self, stream: CallStream, head: CallHead, method: InferMethod) -> None:
        super().__init__(stream, head)
        self._method = method

    @property
    def _tally(self) -> ApiTally | None:
        return None if self._route is None else self._route.tally_of(self._bulk)

    def _batch_id(self, batch: int) -> str:
        return "" if self._route is None else self._route.batch_headers.id_of(batch)

    def _withdraw(self) -> None:
        if self._submitted is not None and self._route is not None:
            self._ran_in = self._route.cancel(self._submitted)

    def _submit(self, route: MessageRoute, payload: Marshalled, sink: Sink | None = None) -> None:
        """Submit the rows. The request itself keeps no ``sink``, which may be the request."""
        stream, head, fair_by = self._stream, self._head, self._method.fair_by
        group = () if route.grouping is None else route.grouping.of_headers(head.metadata)
        values, request_id = route.values_of(head.metadata), self.request_id
        payload.contract = route.contract
        payload = route.complete(payload, group=group, values=values, request_id=request_id, span=self._span)
        self._payload, self._rows = payload, payload.rows
        if (classes := route.classes) is not None:
            self._bulk = classes.is_bulk(classes.of_headers(head.metadata), payload.parameters)
        # Requests open at one time are of different callers, even if they share a connection.
        source, flow = (stream.connection.number, stream.lane, self.place), value_of(head.metadata, fair_by)
        asked = submission_of(self, route.api, payload, head.timeout_s, source, flow, self._bulk)
        if sink is not None:
            asked.payload = replace(payload, sink=sink)
        self._submitted = route.submit(
            asked, () if route.coalescing is None else credentials_of(head.metadata)
        )

    def _written(self, answer: RequestResult[HandlerResult]) -> tuple[bytes, bytes]:
        assert self._route is not None
        return self._route.dialect.write(accepted(answer), self._payload)

    def _trailers(self, answer: RequestResult[HandlerResult]) -> Sequence[Header]:
        assert self._route is not None
        return self._route.batch_headers.pairs(answer.batch, answer.queued_s)


class InferCall(UnaryRequest, ApiCall):
    """A unary call to an API: ModelInfer, or TensorFlow Serving's Predict."""

    def _dispatch(self, message: bytes) -> None:
        asked = self._method.ask(message)
        route = self._route = asked.route
        if route.streams:
            raise CallFailed("this model streams its responses; call ModelStreamInfer", Code.UNIMPLEMENTED)
        self._submit(route, self._method.read(asked))

    def _finish(self, answer: RequestResult[HandlerResult]) -> None:
        message, values = self._written(answer)
        self._is_answered = True
        self._stream.reply(message, self._trailers(answer), values=values)
        self._count(200)
