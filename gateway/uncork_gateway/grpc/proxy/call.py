"""Unary gRPC calls through the batching proxy: parse, submit in parts, and respond."""

from __future__ import annotations

import asyncio
import time

from uncork_dispatcher import RequestResult
from uncork_gateway.backends.model_servers.known_models import UNKNOWN, can_be_known
from uncork_gateway.backends.model_servers.merged_calls import CallResult, Sent, with_trace
from uncork_gateway.backends.model_servers.server import ServerResponse
from uncork_gateway.grpc.answered_call import UnaryRequest
from uncork_gateway.grpc.interfaces import CallHead, CallStream
from uncork_gateway.grpc.protocols.tensor_wire import TensorWire
from uncork_gateway.grpc.proxy.metadata import to_metadata
from uncork_gateway.grpc.proxy.pass_through import GrpcPassThrough
from uncork_gateway.grpc.statuses import Code
from uncork_gateway.headers import Header, value_of, with_request_id
from uncork_gateway.protocols.raw_json import TooMany
from uncork_gateway.protocols.wire import Content, Unmergeable
from uncork_gateway.requests.batch_headers import NAMES
from uncork_gateway.requests.proxy_target import Merging, RequestInParts, RequestParts
from uncork_gateway.telemetry.metrics import ApiTally


class ProxyCall(RequestInParts, UnaryRequest):
    """One call to the gRPC servers behind the proxy, merged with others if possible."""

    _model = UNKNOWN

    def __init__(
        self,
        stream: CallStream,
        head: CallHead,
        *,
        wire: TensorWire,
        merging: Merging,
        pass_through: GrpcPassThrough,
    ) -> None:
        super().__init__(stream, head)
        self._wire = wire
        self._merging = merging
        self._pass_through = pass_through

    @property
    def _tally(self) -> ApiTally:
        return self._merging.models.tally(self._model)

    def _batch_id(self, batch: int) -> str:
        return self._merging.batch_headers.id_of(batch)

    def _dispatch(self, message: bytes) -> None:
        wire, merging, head = self._wire, self._merging, self._head
        to_metadata(head.metadata)  # Metadata that cannot be sent must not fail the call of others.
        try:
            parsed = wire.read(message)
        except TooMany:
            parsed = wire.request()  # It names no model, so that the message is relayed.
        model = wire.model_of(parsed)
        if can_be_known(model):
            self._model = model
        api = merging.models.use(self._model)
        try:
            if not can_be_known(model):
                raise Unmergeable("the name of its model is empty, too long or not printable")
            request = wire.request_of(parsed, message)
        except Unmergeable:
            self._relaying = asyncio.create_task(self._relay(message))
            return
        keyed, sent = merging.header_rules.sort(head.metadata)
        whole = Sent(
            request=request,
            wire=wire,
            target=head.path,
            headers=sent,
            original=Content(message, head.metadata),
            expires_at=time.monotonic() + head.timeout_s,
            request_id=self.request_id,
            span=self._span,
        )
        # Calls that are open at the same time are different callers, even if they share a connection.
        source = (self._stream.connection.number, self._stream.lane)
        flow = value_of(head.metadata, merging.fair_by)
        self._send_parts(RequestParts(self, merging, api, whole, keyed=keyed, source=source, flow=flow))

    # Results

    def _finish(self, answer: RequestResult[CallResult]) -> None:
        batch, result = answer.batch, answer.result
        trailers = self._merging.batch_headers.pairs(batch, answer.queued_s)
        if isinstance(result, ServerResponse):
            self._answer_with(result, trailers)
        else:
            assert self._parts is not None
            message = self._parts.joined(batch.number).body
            self._is_answered = True
            self._stream.reply(message, trailers)
            self._ended(200)
        self._withdraw()

    def _answer_with(self, response: ServerResponse, trailers: tuple[Header, ...] = ()) -> None:
        """Pass a server's response on unchanged, but with our own batch if we name one in ``trailers``."""
        call = response.call
        assert call is not None
        theirs = [each for each in call.trailers if not (trailers and each[0] in NAMES)]
        self._is_answered = True
        if call.code == Code.OK:
            if response.headers:
                self._stream.begin(response.headers)
            self._stream.reply(response.body, (*theirs, *trailers))
        else:
            self._stream.finish(Code(call.code), call.text, (*theirs, *trailers))
        self._ended(response.status, Code(call.code))

    def _ended(self, status: int, code: Code = Code.OK) -> None:
        if status == 200:
            self._merging.models.add(self._model)
        self._count(status, code=code)

    async def _relay(self, message: bytes) -> None:
        try:
            metadata = with_request_id(self._head.metadata, self.request_id)
            if self._span is not None:
                metadata = with_trace(metadata, self._span.headers())
            time_left_s = self._head.timeout_s - (time.perf_counter() - self._arrived)
            response = await self._pass_through.relay(
                self._head.path, metadata, message, time_left_s=time_left_s
            )
            if not self._is_answered:
                self._answer_with(response)
        except Exception as error:
            self.failed(error)
