"""Unary calls whose only message is a request in the dispatcher."""

from abc import abstractmethod

from uncork_gateway.errors import GatewayError
from uncork_gateway.grpc.answered_call import AnsweredCall
from uncork_gateway.grpc.statuses import CallFailed, Code, code_of, trailers_of


class UnaryRequest(AnsweredCall):
    """Collects the message of a call, and ends the call with an error if it has not exactly one."""

    _message: bytes | None = None

    @abstractmethod
    def _dispatch(self, message: bytes) -> None:
        """Submit the request. The client gets exceptions as the end of the call."""

    # Called by the stream

    def message_received(self, message: bytes) -> None:
        if self._message is not None:
            self.failed(CallFailed("this method takes one message, got more", Code.INTERNAL))
        self._message = message
        self._size = len(message)

    def end_received(self) -> None:
        if self._is_answered:
            return
        try:
            if self._message is None:
                raise CallFailed("this method takes one message, got none", Code.INTERNAL)
            message, self._message = self._message, b""
            self._dispatch(message)
        except Exception as error:
            self.failed(error)

    def reject(self, error: GatewayError) -> None:
        self._withdraw()
        self.failed(error)

    def cancelled(self) -> None:
        self.disconnect()

    def _refuse(self, failure: GatewayError) -> None:
        self._is_answered = True
        code = code_of(failure)
        self._stream.finish(code, str(failure), trailers_of(failure))
        self._count(failure.status, is_refusal=failure.reason is not None, code=code)
