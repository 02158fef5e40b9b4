"""Unary calls whose message becomes a request in the dispatcher."""

import sys
from abc import abstractmethod

from uncork_gateway.errors import GatewayError
from uncork_gateway.grpc.answered_call import AnsweredCall
from uncork_gateway.grpc.statuses import code_of, trailers_of


class UnaryRequest(AnsweredCall):
    """Submits the message of a call to the dispatcher."""

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
        self._count(failure.status, is_refusal=failure.reason is not None, code=code)
