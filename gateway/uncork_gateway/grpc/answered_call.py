"""The common parts of requests that came over gRPC."""

import sys
from abc import abstractmethod

from uncork_gateway.errors import CLIENT_GONE, GatewayError, RefusalReason
from uncork_gateway.grpc.interfaces import CallHead, CallStream
from uncork_gateway.grpc.statuses import Code, code_of, trailers_of
from uncork_gateway.headers import TRACE, printable
from uncork_gateway.requests.answered_request import AnsweredRequest


class AnsweredCall(AnsweredRequest):
    """A request that came over gRPC, with its code in the access log and in its span."""

    protocol = "grpc"
    timeout_header = "grpc-timeout"

    def __init__(self, stream: CallStream, head: CallHead) -> None:
        is_traced = stream.connection.observers.traces is not None
        trace = [header for header in head.metadata if header[0] in TRACE] if is_traced else ()
        super().__init__(stream.connection.observers, head.path, trace)
        self.request_id = stream.request_id
        self._stream = stream
        self._head = head

    def _count(self, status: int, *, refusal: RefusalReason | None = None, code: Code = Code.OK) -> None:
        code = Code.CANCELLED if status == CLIENT_GONE else code
        self._grpc_status = code.name
        if self._span is not None:
            service, _, method = printable(self._target).removeprefix("/").rpartition("/")
            self._span.set_attribute("rpc.system", "grpc")
            self._span.set_attribute("rpc.service", service)
            self._span.set_attribute("rpc.method", method)
            self._span.set_attribute("rpc.grpc.status_code", int(code))
        super()._count(status, refusal=refusal)


class UnaryRequest(AnsweredCall):
    """A unary call whose message becomes a request in the dispatcher."""

    takes_one = True
    max_message_bytes = sys.maxsize

    @abstractmethod
    def _dispatch(self, message: bytes) -> None:
        """Submit the request. An exception ends the call with an error."""

    # Called by the stream

    def message_received(self, message: bytes) -> None:
        self._size = len(message)
        try:
            self._dispatch(message)
        except Exception as error:
            self.failed(error)

    def end_received(self) -> None:
        """Do nothing: the message is already submitted."""

    def reject(self, error: GatewayError) -> None:
        self._withdraw()
        self.failed(error)

    def cancelled(self) -> None:
        self.disconnect()

    def _refuse(self, failure: GatewayError) -> None:
        self._is_answered = True
        code = code_of(failure)
        self._stream.finish(code, str(failure), trailers_of(failure))
        self._count(failure.status, refusal=failure.reason, code=code)
