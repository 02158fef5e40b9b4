"""Traces by OpenTelemetry, set up from its own environment variables."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import version
from typing import TYPE_CHECKING, Literal

from uncork.config.errors import WrongUsage
from uncork_workers.extras import install_command

if TYPE_CHECKING:
    from opentelemetry.sdk.resources import Resource

    from uncork_gateway.telemetry.traces import Traces

log = logging.getLogger("uncork.gateway")

Signal = Literal["TRACES", "METRICS"]
_ACCEPTED: Mapping[Signal, tuple[str, ...]] = {"TRACES": ("otlp", "console"), "METRICS": ("otlp",)}


@contextmanager
def tracing(wanted: bool | None, environment: Mapping[str, str]) -> Iterator[Traces | None]:
    """Give an object that makes spans, or None without traces; send the remaining spans at the end.

    ``wanted`` is the option of the command line. If it is None, traces are made if the environment names an
    exporter; if that is impossible, the log says why.

    Raises:
        WrongUsage: if traces are wanted but impossible.
    """
    exporters = exporters_of("TRACES", environment, wanted=wanted)
    if not exporters:
        if wanted:
            log.warning(
                "no traces are sent, although --traces asks for them: OTEL_TRACES_EXPORTER is none, or "
                "OTEL_SDK_DISABLED is true; unset the variable"
            )
        yield None
        return
    try:
        check_exporters("TRACES", exporters, environment)
    except WrongUsage as error:
        if wanted:
            raise
        log.warning("tracing is off, although the environment enables it: %s", error)
        yield None
        return
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor, ConsoleSpanExporter, SpanExporter

    from uncork_gateway.telemetry.traces import Traces

    provider = TracerProvider(resource=resource_of(environment), shutdown_on_exit=False)
    for name in exporters:
        exporter: SpanExporter = ConsoleSpanExporter()
        if name == "otlp":
            from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

            exporter = OTLPSpanExporter()
        provider.add_span_processor(BatchSpanProcessor(exporter))
    try:
        yield Traces(provider.get_tracer("uncork", version("uncork")))
    finally:
        provider.shutdown()


def resource_of(environment: Mapping[str, str]) -> Resource:
    """Return the resource that the environment describes; its service is ``uncork`` by default."""
    from opentelemetry.sdk.resources import OTELResourceDetector, Resource

    said = OTELResourceDetector().detect().attributes
    name = environment.get("OTEL_SERVICE_NAME") or said.get("service.name")
    return Resource.create({"service.name": name or "uncork"})


def exporters_of(signal: Signal, environment: Mapping[str, str], *, wanted: bool | None = None) -> list[str]:
    """Return the names of the exporters that the environment asks for; empty for none."""
    if wanted is False or environment.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return []
    named = environment.get(f"OTEL_{signal}_EXPORTER", "")
    endpoints = ("OTEL_EXPORTER_OTLP_ENDPOINT", f"OTEL_EXPORTER_OTLP_{signal}_ENDPOINT")
    if not named and (wanted or any(environment.get(name) for name in endpoints)):
        named = "otlp"
    return [name.strip() for name in named.split(",") if name.strip() not in ("", "none")]


def check_exporters(signal: Signal, exporters: list[str], environment: Mapping[str, str]) -> None:
    """Raise WrongUsage if an exporter or its protocol is unknown, or OpenTelemetry is not installed."""
    accepted = _ACCEPTED[signal]
    for name in exporters:
        if name not in accepted:
            raise WrongUsage(f"OTEL_{signal}_EXPORTER must be {', '.join(accepted)} or none, got {name!r}")
    protocols = (f"OTEL_EXPORTER_OTLP_{signal}_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
    protocol = next((environment[name] for name in protocols if environment.get(name)), "http/protobuf")
    if "otlp" in exporters and protocol != "http/protobuf":
        raise WrongUsage(f"OTEL_EXPORTER_OTLP_PROTOCOL must be http/protobuf, got {protocol!r}")
    try:
        import opentelemetry.exporter.otlp.proto.http
        import opentelemetry.sdk.trace  # noqa: F401
    except ImportError:
        raise WrongUsage(f"{signal.lower()} require OpenTelemetry; run {install_command('otel')}") from None
