"""The options of the commands that serve, as the command line describes them."""

from __future__ import annotations

import resource
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from uncork.cli.sizes import read_size
from uncork.cli.usage import WrongUsage, read_header_name
from uncork.config.sources import Kind, Source
from uncork.server.listeners import ListenerOptions
from uncork.server.serving import Drain
from uncork_dispatcher import POLICIES, make_policy
from uncork_gateway.connection.timeouts import ClientLimits
from uncork_gateway.settings import ServerSettings
from uncork_workers.supervision.gpus import read_gpus
from uncork_workers.supervision.recycling import RecyclingLimits
from uncork_workers.wire.overrides import Override

OTHER_FILES = 100
"""What a server has open beside the connections of its clients, at most."""

_OF_ALL_APIS = ("policy", "mb_max_latency", "mb_max_batch_size")
_FRONT = ServerSettings()


class LogLevel(StrEnum):
    """How much is logged."""

    debug = "debug"
    info = "info"
    warning = "warning"
    error = "error"


class LogLines(StrEnum):
    """How it is written."""

    text = "text"
    json = "json"


def readable(read: Callable[[str], object]) -> Callable[[Any], Any]:
    """See that a text, or each of several, can be read when it is given; what it says is wanted later."""

    def check(given: str | list[str] | None) -> str | list[str] | None:
        try:
            for text in [given] if isinstance(given, str) else given or []:
                read(text)
        except ValueError as error:
            raise typer.BadParameter(str(error)) from None
        return given

    return check


def check_policy(name: str) -> None:
    """See that there is such a policy; ValueError if not."""
    make_policy(name, limit_rows=sys.maxsize)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerOptions(ListenerOptions):
    """What every command that serves can be told.

    Attributes:
        sources: where options come from, by name; those that are not in it are defaults.
        api_overrides: what file and environment say of single apis, in this order.
    """

    config: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Settings in TOML. Each can also be in the environment, as UNCORK_LOG_LEVEL for "
            "--log-level, which comes before the file; the command line comes before both.",
            show_default="UNCORK_CONFIG, else none",
        ),
    ] = None
    max_body_bytes: Annotated[
        int, typer.Option(min=1, help="Largest request body in bytes; larger ones get 413.")
    ] = _FRONT.max_body_bytes
    max_queue_rows: Annotated[
        int, typer.Option(min=1, help="Rows (or their cost) held per api or model; requests beyond get 503.")
    ] = _FRONT.max_queue_rows
    max_queue_bytes: Annotated[
        int, typer.Option(min=1, help="Bytes of bodies held per api or model; requests beyond get 503.")
    ] = _FRONT.max_queue_bytes
    fair_by: Annotated[
        str | None,
        typer.Option(
            metavar="HEADER",
            help="Requests share the queues equally by the value of this header, so that one client does not "
            "crowd out the others; those without it count as one.",
            show_default="first come, first served",
            callback=readable(read_header_name),
        ),
    ] = None
    header_timeout: Annotated[
        float, typer.Option(min=0.1, help="Seconds in which the head of a request must come; else 408.")
    ] = 10.0
    body_timeout: Annotated[
        float,
        typer.Option(
            min=0.1, help="Seconds; a body that brings less than 500 bytes/s over as long gets 408."
        ),
    ] = 30.0
    max_connections: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Connections of clients; more get 503.",
            show_default="10000, or 100 below the limit of open files",
        ),
    ] = None
    drain_delay: Annotated[
        float,
        typer.Option(
            min=0,
            help="Seconds that a stop goes on taking requests, not ready any more, for load balancers to "
            "notice.",
        ),
    ] = 0.0
    drain_timeout: Annotated[
        float, typer.Option(min=0, help="Seconds that a stop waits for what is held and what runs.")
    ] = 30.0
    log_level: Annotated[LogLevel, typer.Option(help="How much is logged.")] = LogLevel.info
    log_format: Annotated[LogLines, typer.Option(help="Lines of text, or a JSON object a line.")] = (
        LogLines.text
    )
    access_log: Annotated[
        bool, typer.Option("--access-log", help="Log a line for each request, at level info.")
    ] = False
    traces: Annotated[
        bool | None,
        typer.Option(
            help="Send spans of requests and batches with OpenTelemetry, as its OTEL_ variables say.",
            show_default="if OTEL_TRACES_EXPORTER or OTEL_EXPORTER_OTLP_ENDPOINT is set",
        ),
    ] = None
    sources: Mapping[str, Source] = field(default_factory=dict)
    api_overrides: Sequence[tuple[Kind, Override]] = ()

    @property
    def drain(self) -> Drain:
        """How to stop."""
        return Drain(delay_s=self.drain_delay, timeout_s=self.drain_timeout)

    @property
    def server_settings(self) -> dict[str, Any]:
        """What a front end is told: arguments of :class:`ServerSettings`, without those of the listeners."""
        return {
            "max_body_bytes": self.max_body_bytes,
            "max_queue_rows": self.max_queue_rows,
            "max_queue_bytes": self.max_queue_bytes,
            "access_log": self.access_log,
            "fair_by": None if self.fair_by is None else read_header_name(self.fair_by),
            "clients": ClientLimits(
                head_timeout_s=self.header_timeout,
                body_timeout_s=self.body_timeout,
                max_connections=self.max_connections or _most_connections(),
            ),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeOptions(ServerOptions):
    """The options of ``uncork serve``."""

    target: Annotated[
        str,
        typer.Argument(
            metavar="TARGET", help="The service: MODULE:SERVICE or FILE.py:SERVICE.", show_default=False
        ),
    ] = ""
    workers: Annotated[
        int, typer.Option(min=1, help="Worker processes; each holds its own copy of the model.")
    ] = 1
    policy: Annotated[
        str | None,
        typer.Option(
            help=f"When to release a batch, for all apis: {', '.join(POLICIES)}, fixed:MS or fixed:MS:ROWS.",
            show_default="as each api says, else cork",
            callback=readable(check_policy),
        ),
    ] = None
    mb_max_latency: Annotated[
        float | None,
        typer.Option(
            help="Latency goal in milliseconds, for all apis.", show_default="as each api says, else 300"
        ),
    ] = None
    mb_max_batch_size: Annotated[
        int | None,
        typer.Option(
            min=1, help="Most rows in a batch, for all apis.", show_default="as each api says, else 1000"
        ),
    ] = None
    max_batches_per_worker: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Batches after which a worker is replaced, without a gap; looked at once a second.",
            show_default="never",
        ),
    ] = None
    max_worker_memory: Annotated[
        str | None,
        typer.Option(
            metavar="SIZE",
            help="Resident memory above which a worker is replaced, without a gap: bytes, 500MB, 2GiB.",
            show_default="never",
            callback=readable(read_size),
        ),
    ] = None
    reload: Annotated[
        bool,
        typer.Option(
            "--reload", help="Replace the workers when the service's files change; for development."
        ),
    ] = False
    gpus: Annotated[
        str | None,
        typer.Option(
            help="One GPU for each worker, in turn: a count of GPUs, or their numbers or UUIDs, such as 0,1.",
            show_default="every worker sees all",
            callback=readable(read_gpus),
        ),
    ] = None
    warmup_seconds: Annotated[
        float,
        typer.Option(
            min=0, help="Seconds in which each worker warms up apis that give an example; 0: not at all."
        ),
    ] = 10.0

    @property
    def service(self) -> str:
        """The target.

        Raises:
            WrongUsage: if none is given.
        """
        if not self.target:
            raise WrongUsage("TARGET is missing: the service, as MODULE:SERVICE or FILE.py:SERVICE")
        return self.target

    @property
    def overrides(self) -> list[Override]:
        """What replaces settings of the apis, in rising order of where it is said."""
        flag = Source(Kind.FLAG, "")
        for_all = [
            (source.kind, Override(argument=name, value=getattr(self, name), source=source.name))
            for name in _OF_ALL_APIS
            for source in [self.sources.get(name, flag)]
            if getattr(self, name) is not None
        ]
        ranked = sorted([*for_all, *self.api_overrides], key=lambda one: one[0])
        return [override for _, override in ranked]

    @property
    def recycling(self) -> RecyclingLimits:
        """When workers are replaced."""
        memory = self.max_worker_memory
        return RecyclingLimits(
            batches=self.max_batches_per_worker, memory_bytes=None if memory is None else read_size(memory)
        )

    @property
    def gpu_names(self) -> list[str]:
        """The GPUs that workers get in turn; none if they see all."""
        return [] if self.gpus is None else read_gpus(self.gpus)


def _most_connections() -> int:
    """Connections must leave files for workers, or none could be replaced."""
    files, most = open_files(), ClientLimits().max_connections
    return most if files is None else max(1, min(most, files - OTHER_FILES))


def open_files() -> int | None:
    """How many files this process may have open; None: any number."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return None if files == resource.RLIM_INFINITY else files
