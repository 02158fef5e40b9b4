"""Spans for requests and batches. Requires OpenTelemetry; only :mod:`uncork.server.tracing` imports it."""

from collections.abc import Sequence
from typing import Any

from opentelemetry.context import Context
from opentelemetry.trace import (
    Link,
    Span,
    SpanKind,
    Status,
    StatusCode,
    Tracer,
    format_span_id,
    format_trace_id,
    set_span_in_context,
)
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from uncork_dispatcher import Batch, BatchStatus, Observer, RequestResult
from uncork_gateway.headers import Header, path_of, printable

_propagator = TraceContextTextMapPropagator()
_SERVER_ERROR = 500


class RequestSpan:
    def __init__(self, span: Span) -> None:
        self.span = span
        self.has_ended = False

    @property
    def is_sampled(self) -> bool:
        return self.span.get_span_context().trace_flags.sampled

    def set_attribute(self, key: str, value: str | float) -> None:
        self.span.set_attribute(key, value)

    def end(self, status: int, answer: RequestResult[Any] | None, batch_id: str, request_id: bytes) -> None:
        span, self.has_ended = self.span, True
        span.set_attribute("http.response.status_code", status)
        span.set_attribute("uncork.request_id", request_id.decode())
        if answer is not None:
            span.set_attribute("uncork.api", answer.batch.api)
            span.set_attribute("uncork.batch_id", batch_id)
            span.set_attribute("uncork.queue_ms", answer.queued_s * 1000)
            span.set_attribute("uncork.batch_rows", answer.batch.count)
        if status >= _SERVER_ERROR:
            span.set_attribute("error.type", str(status))
            span.set_status(Status(StatusCode.ERROR))
        span.end()

    def headers(self) -> tuple[str, str]:
        return _headers(self.span)

    def ids(self) -> dict[str, str]:
        """Return the fields of log records that name the span."""
        context = self.span.get_span_context()
        return {"trace_id": format_trace_id(context.trace_id), "span_id": format_span_id(context.span_id)}


class Traces(Observer):
    """Creates spans, and ends batches' spans as an observer of the dispatcher.

    A batch's span is a child of its first sampled request, and is linked with all its sampled requests.
    """

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer
        self._batches: dict[Batch[Any], Span] = {}
        """Not by number: each service numbers its own."""

    def begin_request(self, target: bytes, trace: Sequence[Header]) -> RequestSpan:
        path = printable(path_of(target))
        received: dict[str, list[str]] = {}
        for name, value in trace:  # a tracestate may come in several lines
            received.setdefault(name.decode("latin-1"), []).append(value.decode("latin-1"))
        span = self._tracer.start_span(
            f"POST {path}",
            context=_propagator.extract(received, context=Context()),
            kind=SpanKind.SERVER,
            attributes={"http.request.method": "POST", "url.path": path, "http.route": path},
        )
        return RequestSpan(span)

    def begin_batch(self, batch_id: str, batch: Batch[Any], *, worker: int) -> tuple[str, str]:
        """Begin the span of a batch, which runs in the place ``worker``; return its headers."""
        # Copies of requests have no span. A client may have left a request that others have joined.
        spans = [request.payload.span for request in batch.requests]
        requests: list[Span] = [each.span for each in spans if each is not None and not each.has_ended]
        parents = [each for each in requests if each.get_span_context().trace_flags.sampled] or requests
        context = set_span_in_context(parents[0], Context()) if parents else Context()
        span = self._batches[batch] = self._tracer.start_span(
            f"batch {batch.api}",
            context=context,
            kind=SpanKind.CLIENT,
            attributes={
                "uncork.api": batch.api,
                "uncork.batch_id": batch_id,
                "uncork.reason": batch.reason,
                "uncork.rows": batch.count,
                "uncork.requests": len(batch.requests),
                "uncork.worker": worker,
                "uncork.predicted_ms": batch.predicted_s * 1000,
            },
            links=[Link(request.get_span_context()) for request in requests],
        )
        for request in requests:
            request.add_link(span.get_span_context())
            request.set_attribute("uncork.batch_id", batch_id)
        return _headers(span)

    # The dispatcher's observer

    def batch_ended(self, batch: Batch[Any], status: BatchStatus) -> None:
        span = self._batches.pop(batch, None)
        if span is None:
            return  # the batch was never sent to a worker
        span.set_attribute("uncork.actual_ms", batch.seconds * 1000)
        span.set_attribute("uncork.outcome", status)
        if status != "worked":
            span.set_attribute("error.type", status)
            span.set_status(Status(StatusCode.ERROR))
        span.end()


def _headers(span: Span) -> tuple[str, str]:
    """Return ``traceparent`` and ``tracestate`` for calls within a span; the second may be empty."""
    headers: dict[str, str] = {}
    _propagator.inject(headers, set_span_in_context(span, Context()))
    return headers["traceparent"], headers.get("tracestate", "")
