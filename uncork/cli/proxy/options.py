"""The options of ``uncork proxy``, and the settings that follow from them and from imported ones."""

import os
import ssl
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from uncork.cli.proxy.imported_settings import (
    Imported,
    read_environment,
    read_inference_service,
    read_model_settings,
)
from uncork.cli.usage import in_options
from uncork.config.errors import WrongUsage
from uncork.config.option_fields import argument, flags, option
from uncork.server.listeners import require_grpc
from uncork.server.server_options import ServerOptions, read_header_name, readable
from uncork_dispatcher import POLICY_USAGE
from uncork_gateway.headers import HeaderRules
from uncork_gateway.settings import ProtocolName, ProxySettings

_DEFAULTS = ProxySettings()
_WITH_TLS = ("https://", "grpcs://")
OPTIONS = {
    "max_batch_rows": "--max-batch-size",
    "max_hold_s": "--max-latency",
    "timeout_s": "--timeout",
    **flags("protocol", "policy", "max_queue_rows", "max_queue_bytes", "health_path"),
}
"""Options by field of :class:`ProxySettings`; its errors name fields."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProxyOptions(ServerOptions):
    urls: list[str] | None = argument(
        None,
        "http://HOST:PORT of each model server, or grpc://HOST:PORT of each that speaks gRPC; all must serve "
        "the same models.",
        metavar="URL...",
    )
    protocol: ProtocolName = option(
        "auto",
        "Protocol of clients and servers; auto detects V1, V2 and TensorFlow Serving by the path. V1 has no "
        "gRPC.",
    )
    max_batch_size: int | None = option(
        None,
        "Maximum rows per call; larger requests are split and their responses joined.",
        min=1,
        show_default=str(_DEFAULTS.max_batch_rows),
    )
    max_latency: float | None = option(
        None,
        "Maximum milliseconds that a request waits for others to join its call.",
        min=0,
        show_default=f"{_DEFAULTS.max_hold_s * 1000:g}",
    )
    goal_ms: float | None = option(
        None,
        "Latency goal in milliseconds; requests that would miss it get 503.",
        show_default="none; late requests are not rejected",
    )
    timeout: float | None = option(None, "Maximum seconds per call.", show_default=f"{_DEFAULTS.timeout_s:g}")
    policy: str | None = option(
        None,
        f"Policy that decides when to release a call: {POLICY_USAGE}.",
        show_default=_DEFAULTS.policy,
    )
    concurrency: int = option(1, "Maximum concurrent calls per server.", min=1, max=10_000)
    retry: bool = option(
        True,
        "Retry calls that fail or lose their connection, whole or in parts; disable if requests have side "
        "effects.",
    )
    key_header: list[str] | None = option(
        None,
        "Another header whose values must be equal for requests to share a call; may be repeated.",
        metavar="NAME",
        show_default="only Authorization, Cookie, X-Api-Key",
        callback=readable(read_header_name),
    )
    pass_header: list[str] | None = option(
        None,
        "Another header that a call takes from its first request; may be repeated. The rest are dropped.",
        metavar="NAME",
        show_default="only traceparent, tracestate",
        callback=readable(read_header_name),
    )
    health_path: str | None = option(
        None,
        "Path to probe, such as /v2/health/ready; a server is healthy if it returns 2xx.",
        metavar="PATH",
        show_default="a server is healthy if it accepts connections",
    )
    server_ca: Path | None = option(
        None,
        "CA certificates (PEM) for servers of https:// and grpcs://, whose certificates must be signed by "
        "one of them.",
        metavar="FILE",
        show_default="public authorities",
    )
    inference_service: Path | None = option(
        None,
        "Import batch size, latency and timeout from the batcher of a KServe InferenceService (YAML).",
        metavar="FILE",
    )
    model_settings: Path | None = option(
        None,
        "Import max_batch_size and max_batch_time from an MLServer model-settings.json; by default from "
        "MLSERVER_MODEL_MAX_BATCH_SIZE and MLSERVER_MODEL_MAX_BATCH_TIME, if set.",
        metavar="FILE",
    )

    @property
    def servers(self) -> list[str]:
        """The URLs; raise WrongUsage if there are none."""
        if not self.urls:
            raise WrongUsage(
                "missing argument URL; give http://HOST:PORT or grpc://HOST:PORT of one or more model servers"
            )
        return self.urls

    def check_servers(self) -> None:
        """Check the URLs, and that clients can speak the protocol of the servers.

        Raises:
            WrongUsage: if not, packages for gRPC are missing, or the CA certificates cannot be used.
        """
        # Loads the HTTP client, which `uncork serve` does without.
        from uncork_gateway.backends.model_servers.server import are_grpc, read_addresses

        try:
            speak_grpc = are_grpc(read_addresses(self.servers))
        except ValueError as error:
            raise WrongUsage(str(error)) from None
        if not speak_grpc and self.grpc_port is not None:
            raise WrongUsage(
                "--grpc-port requires servers that speak gRPC, such as grpc://HOST:8001, got "
                f"{', '.join(self.servers)}; the proxy does not translate between gRPC and HTTP"
            )
        self._check_server_ca()
        if speak_grpc:
            require_grpc("a server of grpc://")
            if self.grpc_port is None:
                raise WrongUsage(
                    "--grpc-port is required with servers of grpc://; clients send their requests there, and "
                    "--port serves metrics, status and dashboard only"
                )

    def _check_server_ca(self) -> None:
        if self.server_ca is None:
            return
        if not any(url.startswith(_WITH_TLS) for url in self.servers):
            raise WrongUsage(
                f"--server-ca requires servers of https:// or grpcs://, got {', '.join(self.servers)}"
            )
        try:
            ssl.create_default_context(cafile=self.server_ca)
        except OSError as error:
            raise WrongUsage(f"--server-ca must be a PEM file of certificates: {error}") from None

    @property
    def given(self) -> dict[str, Any]:
        """The options that take precedence over imported settings, by field."""
        options = {
            "max_batch_rows": self.max_batch_size,
            "max_hold_s": None if self.max_latency is None else self.max_latency / 1000,
            "goal_s": None if self.goal_ms is None else self.goal_ms / 1000,
            "timeout_s": self.timeout,
            "policy": self.policy,
        }
        return {name: value for name, value in options.items() if value is not None}

    def imported(self) -> Imported | None:
        """Read the settings of another system, if there are any; raise WrongUsage if they cannot be used."""
        if self.inference_service is not None and self.model_settings is not None:
            raise WrongUsage("--inference-service and --model-settings cannot be combined")
        try:
            if self.inference_service is not None:
                return read_inference_service(self.inference_service)
            if self.model_settings is not None:
                return read_model_settings(self.model_settings, os.environ)
            return read_environment(os.environ)
        except OSError as error:
            raise WrongUsage(f"{error.filename}: {error.strerror}") from None

    def settings(self, imported: Imported | None) -> ProxySettings:
        """Combine the given options, imported settings and defaults, in this order of precedence.

        Raises:
            WrongUsage: if a value is out of range.
        """
        for option_name, value in (("--goal-ms", self.goal_ms), ("--timeout", self.timeout)):
            if value is not None and not value > 0:
                raise WrongUsage(f"{option_name} must be above 0, got {value:g}")
        given = self.given
        others = {} if imported is None else imported.excluding(given)
        settings = replace(
            _DEFAULTS,
            **others,
            **given,
            protocol=self.protocol,
            concurrency=self.concurrency,
            idempotent=self.retry,
            health_path=self.health_path,
            server_ca=self.server_ca,
            headers=HeaderRules(
                keyed=_DEFAULTS.headers.keyed | _names(self.key_header),
                passed=_DEFAULTS.headers.passed | _names(self.pass_header),
            ),
            **self.server_settings,
        )
        try:
            settings.rules("model")
        except ValueError as error:
            raise in_options(error, OPTIONS) from None
        return settings


def _names(texts: Sequence[str] | None) -> frozenset[bytes]:
    return frozenset(read_header_name(text) for text in texts or ())
