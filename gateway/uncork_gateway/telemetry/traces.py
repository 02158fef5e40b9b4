"""Spans for requests and batches. Imported only where somebody traces: it needs OpenTelemetry."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from opentelemetry.context import Context
from opentelemetry.trace import Link, Span, SpanKind, Status, StatusCode, Tracer, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from uncork_dispatcher import BatchFacts, BatchStatus, Job, RequestResult, ShedReason, Start
from uncork_gateway.connection.route_table import Header, path_of
from uncork_gateway.requests.batch_headers import BatchHead

__all__ = ["Span", "Traces"]

_propagator = TraceContextTextMapPropagator()
_SERVER_ERROR = 500


class Traces:
    """Begins and ends spans; the dispatcher's observer, for the ends of batches.

    A batch is the child of the first of its requests that is sampled, and has links to and from all of them.
    """

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer
        self._batches: dict[int, Span] = {}

    def begin_request(self, target: bytes, trace: Sequence[Header]) -> Span:
        """A span for a request, within the trace that its client says."""
        path = path_of(target).decode(errors="backslashreplace")
        return self._tracer.start_span(
            f"POST {path}",
            context=_propagator.extract(
                {name.decode("latin-1"): value.decode("latin-1") for name, value in trace}, context=Context()
            ),
            kind=SpanKind.SERVER,
            attributes={"http.request.method": "POST", "url.path": path, "http.route": path},
        )

    def end_request(self, span: Span, status: int, answer: RequestResult[Any] | None) -> None:
        """It was answered; ``answer`` is what the dispatcher said, if it was executed."""
        span.set_attribute("http.response.status_code", status)
        if answer is not None:
            span.set_attribute("uncork.api", answer.batch.start.api)
            span.set_attribute("uncork.queue_ms", answer.queued_s * 1000)
            span.set_attribute("uncork.batch_rows", answer.batch.rows)
        if status >= _SERVER_ERROR:
            span.set_attribute("error.type", str(status))
            span.set_status(Status(StatusCode.ERROR))
        span.end()

    def begin_batch(self, batch_head: BatchHead, job: Job[Any]) -> tuple[str, str]:
        """A span for a batch whose payloads have a ``span`` each; its traceparent and tracestate."""
        start, batch_id = job.start, batch_head.id_of(job.start.batch)
        requests = [payload.span for payload in job.payloads]
        parent = next((one for one in requests if one.get_span_context().trace_flags.sampled), requests[0])
        span = self._batches[start.batch] = self._tracer.start_span(
            f"batch {start.api}",
            context=set_span_in_context(parent, Context()),
            kind=SpanKind.CLIENT,
            attributes={
                "uncork.api": start.api,
                "uncork.batch_id": batch_id,
                "uncork.reason": start.reason,
                "uncork.rows": sum(job.rows),
                "uncork.requests": len(start.requests),
                "uncork.worker": start.worker,
                "uncork.predicted_ms": start.predicted_s * 1000,
            },
            links=[Link(request.get_span_context()) for request in requests],
        )
        for request in requests:
            request.add_link(span.get_span_context())
            request.set_attribute("uncork.batch_id", batch_id)
        return self.headers(span)

    def headers(self, span: Span) -> tuple[str, str]:
        """``traceparent`` and ``tracestate`` for what is done within a span; the second may be empty."""
        headers: dict[str, str] = {}
        _propagator.inject(headers, set_span_in_context(span, Context()))
        return headers["traceparent"], headers.get("tracestate", "")

    # The dispatcher's observer

    def batch_started(self, start: Start, rows: int, queued_s: Sequence[float]) -> None:
        """Its span has begun, before its worker was told of it."""

    def batch_ended(self, batch: BatchFacts, ending: BatchStatus) -> None:
        """End its span."""
        span = self._batches.pop(batch.start.batch, None)
        if span is None:
            return  # it never went to a worker
        span.set_attribute("uncork.actual_ms", batch.seconds * 1000)
        span.set_attribute("uncork.outcome", ending)
        if ending != "worked":
            span.set_attribute("error.type", ending)
            span.set_status(Status(StatusCode.ERROR))
        span.end()

    def request_shed(self, api: str, reason: ShedReason) -> None:
        """Its answer says so."""
