"""One request in the dispatcher, from arrival to response, for all protocols."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from mypy_extensions import mypyc_attr

from uncork_dispatcher import DispatchError, RequestResult
from uncork_gateway.errors import CLIENT_GONE, GatewayError, RefusalReason, from_dispatcher, unexpected
from uncork_gateway.headers import Header
from uncork_gateway.interfaces import Observers
from uncork_gateway.telemetry.access_log import log_request
from uncork_gateway.telemetry.metrics import ApiTally, Transport

if TYPE_CHECKING:
    from uncork_gateway.telemetry.traces import RequestSpan


@mypyc_attr(allow_interpreted_subclasses=True)
class AnsweredRequest(ABC):
    """Sends a request's only response, a result or an error; counts, logs and traces the request.

    Args:
        observers: the access log and the traces of the connection.
        target: the request target, for the access log and the span.
        trace: the headers that identify the request's trace.
    """

    protocol: ClassVar[Transport]
    executor: ClassVar[str] = "worker"
    """The kind of backend, in a word for clients."""
    timeout_header: ClassVar[str]
    """The header with which clients of the protocol limit their time."""

    # Class attributes, because most requests never change them.
    request_id = b""
    """The id of the request, which its response and the access log carry."""
    cors = b""
    _is_answered = False
    _submitted: Any = None
    """The request in the dispatcher, which refers to this one, while it waits for its result."""
    _answer: RequestResult[Any] | None = None
    """The dispatcher's result, if the request was executed."""
    _ran_in: int | None = None
    """The number of the batch that ran the request without a result, if known."""
    _rows = 0
    """Number of rows, once the body has been read."""
    _size = 0
    """Bytes of the body; 0 for a request over HTTP whose body arrives whole."""
    _span: RequestSpan | None = None
    _grpc_status = ""
    """The name of the code that a gRPC call ended with."""

    def __init__(self, observers: Observers, target: bytes, trace: Sequence[Header]) -> None:
        self._arrived = time.perf_counter()
        self._observers = observers
        self._target = target
        if observers.traces is not None:
            self._span = observers.traces.begin_request(target, trace)

    @property
    @abstractmethod
    def _tally(self) -> ApiTally | None:
        """The counters for the response; None if the request's API is unknown."""

    @abstractmethod
    def _finish(self, answer: RequestResult[Any]) -> None:
        """Send the dispatcher's result. An exception becomes an error response."""

    @abstractmethod
    def _refuse(self, failure: GatewayError) -> None:
        """Send an error response."""

    @abstractmethod
    def _withdraw(self) -> None:
        """Cancel the request in the dispatcher."""

    @abstractmethod
    def _batch_id(self, batch: int) -> str:
        """Return the id of a batch, as in headers and logs."""

    def answered(self, answer: RequestResult[Any]) -> None:
        """Send the result, or the error response for a result that cannot be sent."""
        self._answer = answer
        if isinstance(answer.result, Exception):
            # Not raised: its traceback would refer to this request, and the request to it.
            self.failed(answer.result)
            return
        try:
            self._finish(answer)
        except Exception as error:
            self.failed(error)

    def failed(self, error: Exception) -> None:
        """Send an error response; if the response has been sent, only log internal errors."""
        failure = self._failure(error)
        if not self._is_answered:
            self._refuse(failure)

    def disconnect(self) -> None:
        """Cancel the request: its client has gone."""
        if not self._is_answered:
            self._is_answered = True
            self._withdraw()
            self._count(CLIENT_GONE)

    def _failure(self, error: Exception) -> GatewayError:
        if isinstance(error, DispatchError):
            self._ran_in = error.batch
            error = from_dispatcher(error, executor=self.executor, timeout=self.timeout_header)
        return error if isinstance(error, GatewayError) else unexpected(error)

    def _count(self, status: int, *, refusal: RefusalReason | None = None) -> None:
        self._submitted = None
        seconds = time.perf_counter() - self._arrived
        tally, answer, access_log = self._tally, self._answer, self._observers.access_log
        if tally is not None:
            tally.answered(status, seconds, self._rows, refusal=refusal, protocol=self.protocol)
        if not access_log and self._span is None:
            return
        number = self._ran_in if answer is None else answer.batch.number
        batch_id = "" if number is None else self._batch_id(number)
        if access_log:
            log_request(
                "POST",
                self._target,
                status,
                seconds,
                size=self._body_bytes(),
                request_id=self.request_id,
                batch_id=batch_id,
                grpc_status=self._grpc_status,
                span={} if self._span is None else self._span.ids(),
            )
        if self._span is not None:
            self._span.end(status, answer, batch_id, self.request_id)
            if tally is not None and self._span.is_sampled:
                tally.duration.keep_example(seconds, self._span.ids())

    def _body_bytes(self) -> int:
        return self._size
