"""The common part of requests that came over gRPC: their codes in the access log and in spans."""

from uncork_gateway.errors import CLIENT_GONE
from uncork_gateway.grpc.interfaces import CallHead, CallStream
from uncork_gateway.grpc.statuses import Code
from uncork_gateway.headers import TRACE, printable
from uncork_gateway.requests.answered_request import AnsweredRequest


class AnsweredCall(AnsweredRequest):
    """A request that came over gRPC."""

    protocol = "grpc"
    timeout_header = "grpc-timeout"

    def __init__(self, stream: CallStream, head: CallHead) -> None:
        is_traced = stream.connection.traces is not None
        trace = [header for header in head.metadata if header[0] in TRACE] if is_traced else ()
        super().__init__(stream.connection, head.path, trace)
        self._stream = stream
        self._head = head

    def _count(self, status: int, *, is_refusal: bool = False, code: Code = Code.OK) -> None:
        code = Code.CANCELLED if status == CLIENT_GONE else code
        self._grpc_status = code.name
        if self._span is not None:
            service, _, method = printable(self._target).removeprefix("/").rpartition("/")
            self._span.set_attribute("rpc.system", "grpc")
            self._span.set_attribute("rpc.service", service)
            self._span.set_attribute("rpc.method", method)
            self._span.set_attribute("rpc.grpc.status_code", int(code))
        super()._count(status, is_refusal=is_refusal)
