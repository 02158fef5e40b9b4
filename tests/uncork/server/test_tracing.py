"""When traces are made, and where they go."""

from __future__ import annotations

import logging
import os
import re
import sys
import threading
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from uncork.config.errors import WrongUsage
from uncork.server.tracing import resource_of, tracing
from uncork_workers.extras import install_command


@pytest.mark.parametrize(
    ("wanted", "environment"),
    [
        (None, {}),
        (None, {"OTEL_TRACES_EXPORTER": "none", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1"}),
        (None, {"OTEL_TRACES_EXPORTER": "console", "OTEL_SDK_DISABLED": "true"}),
        (False, {"OTEL_TRACES_EXPORTER": "console"}),
    ],
    ids=["nobody asks", "none", "disabled", "no"],
)
def test_nothing_is_traced(wanted: bool | None, environment: Mapping[str, str]) -> None:
    """Unless somebody asks for it."""
    with tracing(wanted, environment) as traces:
        assert traces is None


@pytest.mark.parametrize(
    ("environment", "complaint"),
    [
        (
            {"OTEL_TRACES_EXPORTER": "zipkin"},
            "OTEL_TRACES_EXPORTER must be otlp, console or none, got 'zipkin'",
        ),
        (
            {"OTEL_TRACES_EXPORTER": "otlp", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"},
            "OTEL_EXPORTER_OTLP_PROTOCOL must be http/protobuf, got 'grpc'",
        ),
    ],
    ids=["exporter", "protocol"],
)
def test_what_cannot_be_had_is_an_error_if_it_is_wanted(
    environment: Mapping[str, str], complaint: str, caplog: pytest.LogCaptureFixture
) -> None:
    """And a line of the log if only the environment asks: it may be set for a whole cluster."""
    with pytest.raises(WrongUsage, match=complaint), tracing(True, environment):
        pass
    with tracing(None, environment) as traces:
        assert traces is None
    assert complaint in caplog.text


@pytest.mark.parametrize("environment", [{"OTEL_TRACES_EXPORTER": "none"}, {"OTEL_SDK_DISABLED": "true"}])
def test_traces_that_are_wanted_and_turned_off_are_told(
    environment: Mapping[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    """The environment still decides: it may be set for a whole cluster."""
    with tracing(True, environment) as traces:
        assert traces is None
    assert "no traces are sent, although --traces asks for them" in caplog.text


def test_without_the_extra_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)
    with pytest.raises(WrongUsage, match=re.escape(install_command("otel"))), tracing(True, {}):
        pass


class Collector(HTTPServer):
    """Takes spans as an OpenTelemetry collector does."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.bodies: list[tuple[str, bytes]] = []
        self.gate = threading.Event()
        """Opened, it lets responses through."""
        self.gate.set()


class _Handler(BaseHTTPRequestHandler):
    server: Collector

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        self.server.bodies.append((self.path, body))
        self.server.gate.wait()
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Quietly."""


def test_spans_are_sent_at_the_end_at_the_latest(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.ERROR)
    with Collector() as collector:
        serving = threading.Thread(target=collector.serve_forever)
        serving.start()
        address = f"http://127.0.0.1:{collector.server_port}"
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", address)
        try:
            with tracing(None, {"OTEL_EXPORTER_OTLP_ENDPOINT": address}) as traces:
                assert traces is not None
                traces.begin_request(b"/predict?q=1", ()).end(200, None, "", b"one")
        finally:
            collector.shutdown()
            serving.join()

    [(path, body)] = collector.bodies
    [sent] = ExportTraceServiceRequest.FromString(body).resource_spans
    assert path == "/v1/traces"
    assert [span.name for scope in sent.scope_spans for span in scope.spans] == ["POST /predict"]
    assert "uncork" in [
        one.value.string_value for one in sent.resource.attributes if one.key == "service.name"
    ]


@pytest.mark.parametrize(
    ("environment", "name"),
    [
        ({}, "uncork"),
        ({"OTEL_SERVICE_NAME": ""}, "uncork"),
        ({"OTEL_RESOURCE_ATTRIBUTES": "a=b,service.name=mine"}, "mine"),
        ({"OTEL_RESOURCE_ATTRIBUTES": "service.name=mine", "OTEL_SERVICE_NAME": "other"}, "other"),
    ],
)
def test_the_environment_names_the_service(
    environment: Mapping[str, str], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in ("OTEL_SERVICE_NAME", "OTEL_RESOURCE_ATTRIBUTES"):
        monkeypatch.delenv(variable, raising=False)
    for variable, value in environment.items():
        monkeypatch.setenv(variable, value)
    assert resource_of(os.environ).attributes["service.name"] == name
