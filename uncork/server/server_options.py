"""The options that ``uncork serve`` and ``uncork proxy`` share."""

import re
import resource
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import typer

from uncork.config.option_fields import MOST_BYTES, option
from uncork.config.sources import Configuration, Kind, Source
from uncork_gateway.auth import AllowedOrigins, read_origin
from uncork_gateway.connection.client_limits import MOST_REFUSED, ClientLimits
from uncork_gateway.settings import ServerSettings
from uncork_workers.process.logs import LogFormat
from uncork_workers.wire.groups import is_header_name
from uncork_workers.wire.overrides import Override

OTHER_FILES = 100
"""Files that a server may have open in addition to its client connections and workers."""

_DEFAULTS = ServerSettings()
LogLevel = Literal["debug", "info", "warning", "error"]
_HOST_NAME = re.compile(r"[0-9A-Za-z_-]+(?:\.[0-9A-Za-z_-]+)*")


def readable(read: Callable[[str], object]) -> Callable[[Any], Any]:
    """Return a callback for an option that accepts only texts, or lists of texts, that ``read`` can parse."""

    def check(given: str | list[str] | None) -> str | list[str] | None:
        try:
            for text in [given] if isinstance(given, str) else given or []:
                read(text)
        except ValueError as error:
            raise typer.BadParameter(str(error)) from None
        return given

    return check


def read_header_name(text: str) -> bytes:
    """Return the name of a header in lower case; raise ValueError if the text is no header name."""
    if not is_header_name(text):
        raise ValueError(f"{text!r} is not a header name; give a name such as X-Client-Id")
    return text.lower().encode()


def read_host_name(text: str) -> str:
    """Return the name of a host in lower case; raise ValueError if the text is no name."""
    if not _HOST_NAME.fullmatch(text):
        raise ValueError(f"{text!r} is not the name of a host; give a name such as models.example.com")
    return text.lower()


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerOptions:
    """The options of every command that runs a server.

    Attributes:
        sources: where options come from, by name; options without a source have their defaults.
        api_overrides: settings of single APIs, first those of the file, then those of the environment.
        services: the settings of each service, by its name, with the converted values of the options.
        reread: returns these options with the present content of the file, and raises
            :class:`~uncork.config.errors.WrongUsage` if it is wrong. Command line and environment stay those
            of the start. None if the options were made in another way.
    """

    host: str = option("127.0.0.1", "Address to listen on.")
    port: int = option(3000, "Port to listen on; 0 picks a free one.", min=0, max=65535)
    uds: Path | None = option(
        None,
        "Unix socket to listen on, in addition to --port, for clients on this machine such as nginx; without "
        "TLS, for the server's user and group.",
        metavar="PATH",
        show_default="no Unix socket",
    )
    admin_host: str = option("127.0.0.1", "Address to listen on with --admin-port.")
    admin_port: int | None = option(
        None,
        "Separate port for metrics, status and dashboard, served there without TLS or API keys.",
        min=0,
        max=65535,
        show_default="served on --port",
    )
    grpc_port: int | None = option(
        None,
        "Port for gRPC clients, on --host, with the TLS options and API keys of --port; 0 picks a free one.",
        min=0,
        max=65535,
        show_default="no gRPC",
    )
    grpc_max_connection_age: float | None = option(
        None,
        "Close each gRPC connection after about this many seconds, when its calls have ended, so that "
        "clients spread over new servers.",
        min=1,
        show_default="unlimited",
    )
    api_key_file: Path | None = option(
        None,
        "File of API keys, one per line; clients send one as Authorization: Bearer KEY or X-Api-Key: KEY.",
        metavar="FILE",
        show_default="no key required",
    )
    tls_cert: Path | None = option(
        None,
        "Certificate chain (PEM); serves HTTPS instead of HTTP.",
        metavar="FILE",
        show_default="plain HTTP",
    )
    tls_key: Path | None = option(
        None,
        "Private key for --tls-cert (PEM), unencrypted.",
        metavar="FILE",
        show_default="read from --tls-cert",
    )
    tls_client_ca: Path | None = option(
        None,
        "CA certificates (PEM); clients must present a certificate signed by one of them.",
        metavar="FILE",
        show_default="no client certificate required",
    )
    config: Path | None = option(
        None,
        "TOML file with settings. Environment variables, such as UNCORK_LOG_LEVEL for --log-level, "
        "override it; the command line overrides both.",
        metavar="FILE",
        show_default="UNCORK_CONFIG, else none",
    )
    watch_config: bool = option(
        False,
        "Reload the settings when the file of --config, or one of keys, certificates, a token or imported "
        "settings, changes.",
        "--watch-config",
    )
    max_body_bytes: int = option(
        _DEFAULTS.max_body_bytes,
        "Maximum request body in bytes; larger bodies get 413.",
        min=1,
        max=MOST_BYTES,
    )
    max_queue_rows: int = option(
        _DEFAULTS.max_queue_rows,
        "Maximum rows (or their cost) queued per API or model; further requests get 503.",
        min=1,
    )
    max_queue_bytes: int = option(
        _DEFAULTS.max_queue_bytes,
        "Maximum bytes of request bodies queued per API or model; further requests get 503.",
        min=1,
        max=MOST_BYTES,
    )
    fair_by: str | None = option(
        None,
        "Header that identifies a client; clients share the queues equally, so that none can crowd out the "
        "others. Requests without the header count as one client.",
        metavar="HEADER",
        show_default="first come, first served",
        callback=readable(read_header_name),
    )
    header_timeout: float = option(
        10.0, "Reject requests whose headers take longer than this many seconds (408).", min=0.1
    )
    body_timeout: float = option(
        30.0, "Reject bodies that average under 500 B/s over this many seconds (408).", min=0.1
    )
    max_connections: int | None = option(
        None,
        "Maximum client connections; eight more at a time get 503, and others are closed.",
        min=1,
        show_default="10000, or less if the limit of open files is low",
    )
    max_header_fields: int = option(
        ClientLimits().max_header_fields,
        "Maximum header fields of a request; more get 431 (gRPC: RESOURCE_EXHAUSTED).",
        min=10,
        max=100_000,
    )
    allowed_hosts: list[str] | None = option(
        None,
        "Name that requests may have in Host, besides addresses and localhost; may be repeated. Others get "
        "421.",
        metavar="NAME",
        show_default="all names",
        callback=readable(read_host_name),
    )
    cors_origin: list[str] | None = option(
        None,
        "Origin whose pages may call the API in browsers, such as https://app.example.com, or * for all; may "
        "be repeated. Never with credentials.",
        metavar="ORIGIN",
        show_default="the server's own",
        callback=readable(read_origin),
    )
    drain_delay: float = option(
        0.0,
        "Seconds to keep serving after /readyz turns 503, so that load balancers notice.",
        min=0,
    )
    drain_timeout: float = option(30.0, "Seconds to wait at shutdown for queued and running requests.", min=0)
    log_level: LogLevel = option("info", "Minimum level to log.")
    log_format: LogFormat = option("text", "Log as lines of text, or as one JSON object per line.")
    access_log: bool = option(False, "Log a line for each request, at level info.", "--access-log")
    traces: bool | None = option(
        None,
        "Send OpenTelemetry spans for requests and batches, as configured by the standard OTEL_ variables.",
        show_default="on if OTEL_TRACES_EXPORTER or an OTLP endpoint is set",
    )
    sources: Mapping[str, Source] = field(default_factory=dict)
    api_overrides: Sequence[tuple[Kind, Override]] = ()
    services: Mapping[str, Configuration] = field(default_factory=dict)
    reread: Callable[[], Any] | None = field(default=None, compare=False, repr=False)

    def source_of(self, name: str) -> str:
        """Return the key, variable or option that a setting comes from, for messages."""
        source = self.sources.get(name)
        return f"--{name.replace('_', '-')}" if source is None else source.name

    @property
    def other_files(self) -> int:
        """The number of files that the server may open in addition to client connections."""
        return OTHER_FILES

    @property
    def most_connections(self) -> int:
        """The most client connections of all ports; without other files, no worker could be replaced."""
        files, most = open_files(), self.max_connections or ClientLimits().max_connections
        if files is None:
            return most
        # A low limit is shared evenly, and the share of clients with those that are refused.
        return max(1, min(most, max(files - self.other_files, files // 2 - MOST_REFUSED)))

    @property
    def server_settings(self) -> dict[str, Any]:
        """Arguments of :class:`ServerSettings`, without those that depend on the listeners."""
        origins = frozenset(map(read_origin, self.cors_origin or ()))
        return {
            "max_body_bytes": self.max_body_bytes,
            "max_queue_rows": self.max_queue_rows,
            "max_queue_bytes": self.max_queue_bytes,
            "access_log": self.access_log,
            "origins": AllowedOrigins(origins) if origins else None,
            "fair_by": None if self.fair_by is None else read_header_name(self.fair_by),
            "clients": ClientLimits(
                head_timeout_s=self.header_timeout,
                body_timeout_s=self.body_timeout,
                max_connections=self.most_connections,
                max_header_fields=self.max_header_fields,
                allowed_hosts=frozenset(map(read_host_name, self.allowed_hosts or ())),
            ),
        }


def open_files() -> int | None:
    """Return how many files this process may have open; None if there is no limit."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return None if files == resource.RLIM_INFINITY else files
