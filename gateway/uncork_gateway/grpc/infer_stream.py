"""ModelStreamInfer: every message of the stream is a separate request.

Responses come in the order of their requests, as from Triton, except those of APIs that stream, which come
piece by piece when the handler yields them.
"""

from __future__ import annotations

import math
import sys
import time
from collections import deque
from heapq import heappop, heappush
from http import HTTPStatus

from uncork_dispatcher import RequestResult
from uncork_gateway.dialects.base import HandlerResult
from uncork_gateway.errors import GatewayError, Refused, no_room
from uncork_gateway.grpc.api_call import ApiCall
from uncork_gateway.grpc.infer_method import Asked, InferMethod
from uncork_gateway.grpc.interfaces import CallHead, CallStream
from uncork_gateway.grpc.messages import message
from uncork_gateway.grpc.methods import PlainCall
from uncork_gateway.grpc.protocols.v2 import WANTS_FINAL
from uncork_gateway.grpc.protocols.values import varint
from uncork_gateway.grpc.statuses import Code, code_of
from uncork_gateway.interfaces import SMALL_BODY_BYTES
from uncork_gateway.protocols.tensor_rows import OUTPUT
from uncork_gateway.requests.api_target import accepted
from uncork_workers.wire.messages import AnswerHead
from uncork_workers.wire.tensors import prefixed

FINAL = "triton_final_response"
_Response = message("inference.ModelInferResponse")
_StreamResponse = message("inference.ModelStreamInferResponse")
_INFER_RESPONSE = b"\x12"
"""The tag of ``infer_response``, field 2."""
_FIRST_ERROR = 400
_LINES = "application/x-ndjson"
# Of answers that wait for an earlier one. More messages are read only when there is less.
_MOST_WAITING_BYTES = 1024 * 1024
# Memory of an answer besides its message.
_ANSWER_BYTES = 2048


class InferStream(PlainCall):
    """One call of ModelStreamInfer.

    Attributes:
        messages: the number of messages received; the ids of its requests end in theirs.
    """

    max_message_bytes = sys.maxsize

    def __init__(self, stream: CallStream, head: CallHead, method: InferMethod) -> None:
        super().__init__(stream, head)
        self.stream = stream
        self.messages = 0
        self._expires_at = time.monotonic() + head.timeout_s
        self._method = method
        self._open: dict[StreamedRequest, None] = {}
        self._free_places: list[int] = []
        self._in_order: deque[StreamedRequest] = deque()
        self._waiting_bytes = 0
        """The bytes of responses that wait for earlier ones; the pool counts them."""
        self._ended = False
        self._revoked: GatewayError | None = None

    # Called by the stream

    def message_received(self, message: bytes) -> None:
        """Begin a request. If the message is invalid, its response is an error, and the stream continues."""
        if self._revoked is not None:
            return
        try:
            asked = self._method.ask(message)
        except GatewayError as error:
            self._add(StreamedRequest, message).refuse(error, request_id=self._method.id_of(message))
            return
        self._add(DecoupledRequest if asked.route.streams else StreamedRequest, message).begin(asked)

    def _add(self, kind: type[StreamedRequest], message: bytes) -> StreamedRequest:
        self.messages += 1
        head = self._head
        if self._expires_at != math.inf:
            head = head._replace(timeout_s=self._expires_at - time.monotonic())
        request = kind(self, head, self._method, size_bytes=len(message))
        request.place = heappop(self._free_places) if self._free_places else len(self._open)
        self._open[request] = None
        if kind is StreamedRequest:
            self._in_order.append(request)
        return request

    def end_received(self) -> None:
        self._ended = True
        self._finish_if_done()

    def revoke(self, error: GatewayError) -> None:
        """Take no more requests, and end with an error after the responses to those that were accepted."""
        self._revoked = error
        self._finish_if_done()

    def reject(self, error: GatewayError) -> None:
        """End the stream with an error, and log it. The responses to its other requests are lost."""
        self._leave()
        super().reject(error)

    def cancelled(self) -> None:
        """Cancel the requests. Each has a line in the log, and the stream none."""
        self._is_finished = True
        self._leave()

    # Called by the requests

    def done(self, request: StreamedRequest) -> None:
        """Send the responses that are due in order, and end the stream after the last one."""
        del self._open[request]
        heappush(self._free_places, request.place)
        self._count_waiting(request.waiting_bytes)
        while self._in_order and self._in_order[0].response is not None:
            answered = self._in_order.popleft()
            self._count_waiting(-answered.waiting_bytes)
            self.stream.send(answered.response or b"")
        if self._waiting_bytes > SMALL_BODY_BYTES and self.stream.connection.pool.is_full:
            self.reject(no_room())
        elif self._waiting_bytes > _MOST_WAITING_BYTES:
            self.stream.pause()
        else:
            self.stream.resume()
        self._finish_if_done()

    def _count_waiting(self, size: int) -> None:
        self._waiting_bytes += size
        self.stream.connection.pool.used_bytes += size

    def _finish_if_done(self) -> None:
        if self._open:
            return
        if self._ended:
            self._is_finished = True
            self.stream.finish(Code.OK)
        elif self._revoked is not None:
            self.reject(self._revoked)

    def _leave(self) -> None:
        requests, self._open = list(self._open), {}
        self._in_order.clear()
        self._count_waiting(-self._waiting_bytes)
        for request in requests:
            request.disconnect()


class StreamedRequest(ApiCall):
    """One message of a stream, to an API that does not stream.

    Attributes:
        response: the response message, once it is complete.
    """

    response: bytes | None = None
    _id = ""

    @property
    def waiting_bytes(self) -> int:
        """The bytes of a response that waits for earlier ones."""
        return 0 if self.response is None else len(self.response) + _ANSWER_BYTES

    def __init__(self, call: InferStream, head: CallHead, method: InferMethod, *, size_bytes: int) -> None:
        super().__init__(call.stream, head, method)
        self._call = call
        self._size = size_bytes
        self.request_id = b"%b.%d" % (call.stream.request_id, call.messages)

    def refuse(self, error: GatewayError, *, request_id: str) -> None:
        """Respond with an error to a message that names no API."""
        self._id = request_id
        self.failed(error)

    def begin(self, asked: Asked) -> None:
        self._route, self._id = asked.route, asked.id
        try:
            self._dispatch(asked)
        except Exception as error:
            self.failed(error)

    def _dispatch(self, asked: Asked) -> None:
        self._submit(asked.route, self._method.read(asked))

    def _finish(self, answer: RequestResult[HandlerResult]) -> None:
        self._end(of_answer(*self._written(answer)))

    def _refuse(self, failure: GatewayError) -> None:
        response = of_error(str(failure), request_id=self._id)
        self._end(response, failure)

    def _end(self, response: bytes, failure: GatewayError | None = None) -> None:
        if self._is_answered:
            return  # Sending the answer has reset the stream.
        self._is_answered = True
        self.response = response
        if failure is None:
            self._count(HTTPStatus.OK)
        else:
            self._count(failure.status, refusal=failure.reason, code=code_of(failure))
        self._call.done(self)


class DecoupledRequest(StreamedRequest):
    """One message of a stream, to an API that streams; receives the pieces from the worker.

    After the first piece, an error is sent as a message after the pieces so far.
    """

    waiting_bytes = 0
    _is_final_wanted = False
    _is_lines = False
    """True if each piece is a line of JSON."""

    def _dispatch(self, asked: Asked) -> None:
        self._is_final_wanted = asked.request.parameters[WANTS_FINAL].bool_param
        self._submit(asked.route, self._method.read(asked), sink=self)

    def started(self, batch: int) -> None:
        """Do nothing: the pieces do not name their batch."""

    def piece(self, head: AnswerHead | None, data: bytes) -> None:
        if self._is_answered:
            return  # The worker has not received the cancellation yet.
        if head is not None and head.status >= _FIRST_ERROR:
            self._withdraw()
            self.failed(Refused(data.decode(errors="replace"), head.status))
            return
        if head is not None:
            self._is_lines = head.content_type == _LINES
        if data:
            self._send(data.removesuffix(b"\n") if self._is_lines else data)

    def _finish(self, answer: RequestResult[HandlerResult]) -> None:
        accepted(answer)
        if self._is_final_wanted:
            self._send(None)
        self._end(b"")

    def _refuse(self, failure: GatewayError) -> None:
        self._call.stream.send(of_error(str(failure), request_id=self._id))
        self._end(b"", failure)

    def _send(self, data: bytes | None) -> None:
        assert self._route is not None
        piece = of_piece(data, model=self._route.model, version=self._route.version, request_id=self._id)
        self._call.stream.send(piece)


def of_answer(response: bytes, values: bytes = b"") -> bytes:
    """Return the message with a serialized ModelInferResponse; ``values`` is its second part, if any."""
    # Parsing and writing it again would copy its tensors twice.
    return b"%b%b%b%b" % (_INFER_RESPONSE, varint(len(response) + len(values)), response, values)


def of_piece(data: bytes | None, *, model: str, version: str, request_id: str) -> bytes:
    """Return the message with a piece of a streamed response, as a BYTES element; None marks the end."""
    response = _Response(model_name=model, model_version=version, id=request_id)
    response.parameters[FINAL].bool_param = data is None
    if data is not None:
        response.outputs.add(name=OUTPUT, datatype="BYTES", shape=[1])
        response.raw_output_contents.append(prefixed([data]))
    return of_answer(response.SerializeToString())


def of_error(text: str, *, request_id: str) -> bytes:
    """Return the message with an error instead of a response."""
    failed = _StreamResponse(error_message=text)
    failed.infer_response.id = request_id
    written: bytes = failed.SerializeToString()
    return written
