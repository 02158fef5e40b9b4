"""Unary calls to an API: ModelInfer, and TensorFlow Serving's Predict."""

from uncork_dispatcher import RequestResult
from uncork_gateway.dialects.base import HandlerResult
from uncork_gateway.grpc.api_call import ApiCall
from uncork_gateway.grpc.statuses import CallFailed, Code
from uncork_gateway.grpc.unary_request import UnaryRequest


class InferCall(UnaryRequest, ApiCall):
    """A unary call: one request message, one response."""

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
