"""``uncork proxy``: puts batching in front of model servers that are already there."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
import uvloop

from uncork import banner
from uncork.complaints import complain
from uncork.control import Outcome, listening
from uncork.doors import DoorOptions, Doors, open_doors
from uncork.proxy_settings import (
    Imported,
    WrongSettings,
    read_environment,
    read_inference_service,
    read_model_settings,
)
from uncork.serve_options import (
    AdminHost,
    AdminPort,
    ApiKeyFile,
    BodyTimeout,
    DrainDelay,
    DrainTimeout,
    FairBy,
    HeaderTimeout,
    Host,
    LogLevel,
    LogLevelOption,
    MaxBodyBytes,
    MaxConnections,
    MaxQueueBytes,
    Port,
    TlsCert,
    TlsClientCa,
    TlsKey,
    client_limits,
)
from uncork.serving import Drain, log_to_terminal, serve_until_signal
from uncork.usage import WrongUsage, header_name, in_options, refusals
from uncork_dispatcher import POLICIES
from uncork_gateway.merged_route import HeaderRules
from uncork_gateway.proxy import Proxy, ProxySettings

log = logging.getLogger("uncork.gateway")

_DEFAULTS = ProxySettings()
# Settings speak of their own fields, people of options.
_OPTIONS = {
    "max_batch_rows": "--max-batch-size",
    "max_hold_s": "--max-latency",
    "policy": "--policy",
    "max_queue_rows": "--max-queue-rows",
    "max_queue_bytes": "--max-queue-bytes",
    "the health path": "--health-path",
}
_NOTHING_TO_RELOAD = "a proxy has no workers to reload"


class ProtocolName(StrEnum):
    """What clients and servers speak."""

    auto = "auto"
    v1 = "v1"
    v2 = "v2"
    tfserving = "tfserving"


def proxy(
    urls: Annotated[
        list[str],
        typer.Argument(metavar="URL...", help="http://HOST:PORT of each server; all serve the same models."),
    ],
    protocol: Annotated[
        ProtocolName,
        typer.Option(
            help="What clients and servers speak; auto tells V1, V2 and TensorFlow Serving by the path."
        ),
    ] = ProtocolName.auto,
    max_batch_size: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Most rows in a call; a larger request is cut, and its answer put together.",
            show_default=str(_DEFAULTS.max_batch_rows),
        ),
    ] = None,
    max_latency: Annotated[
        float | None,
        typer.Option(
            min=0,
            help="Longest time in milliseconds that a request is held for others to join it.",
            show_default=f"{_DEFAULTS.max_hold_s * 1000:g}",
        ),
    ] = None,
    goal_ms: Annotated[
        float | None,
        typer.Option(
            help="Latency goal in milliseconds; what cannot be answered in time is refused with 503.",
            show_default="none, nothing is refused for being late",
        ),
    ] = None,
    timeout: Annotated[
        float | None,
        typer.Option(help="Seconds that a call may take.", show_default=f"{_DEFAULTS.timeout_s:g}"),
    ] = None,
    policy: Annotated[
        str | None,
        typer.Option(
            help=f"When to release a call: {', '.join(POLICIES)}, fixed:MS or fixed:MS:ROWS.",
            show_default=_DEFAULTS.policy,
        ),
    ] = None,
    concurrency: Annotated[int, typer.Option(min=1, help="Calls that each server runs at a time.")] = 1,
    retry: Annotated[
        bool,
        typer.Option(
            help="Make a call again that broke or failed, whole or in parts; not if answers have effects."
        ),
    ] = True,
    key_header: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Requests that differ in this header do not share a call; repeat for more.",
            show_default="Authorization, Cookie",
        ),
    ] = None,
    pass_header: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Header that a call has from its first request; repeat for more. Others are dropped.",
            show_default="traceparent, tracestate",
        ),
    ] = None,
    health_path: Annotated[
        str | None,
        typer.Option(
            metavar="PATH",
            help="What a healthy server answers with 2xx, as /v2/health/ready.",
            show_default="it takes connections",
        ),
    ] = None,
    inference_service: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Take size, latency and timeout from the batcher of a KServe InferenceService.",
        ),
    ] = None,
    model_settings: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Take max_batch_size and max_batch_time from an MLServer model-settings.json; without, from "
            "MLSERVER_MODEL_MAX_BATCH_SIZE and _TIME if they are set.",
        ),
    ] = None,
    host: Host = "127.0.0.1",
    port: Port = 3000,
    max_body_bytes: MaxBodyBytes = _DEFAULTS.max_body_bytes,
    max_queue_rows: Annotated[
        int, typer.Option(min=1, help="Rows held per model; requests beyond get 503.")
    ] = _DEFAULTS.max_queue_rows,
    drain_delay: DrainDelay = 0.0,
    header_timeout: HeaderTimeout = 10.0,
    body_timeout: BodyTimeout = 30.0,
    max_connections: MaxConnections = None,
    max_queue_bytes: MaxQueueBytes = _DEFAULTS.max_queue_bytes,
    fair_by: FairBy = None,
    drain_timeout: DrainTimeout = 30.0,
    log_level: LogLevelOption = LogLevel.info,
    admin_host: AdminHost = "127.0.0.1",
    admin_port: AdminPort = None,
    api_key_file: ApiKeyFile = None,
    tls_cert: TlsCert = None,
    tls_key: TlsKey = None,
    tls_client_ca: TlsClientCa = None,
) -> None:
    """Merge concurrent requests to model servers that speak KServe V1, V2 or TensorFlow Serving REST.

    What cannot be merged is passed through as it is. Options that are given come before those from files.
    """
    with refusals("proxy"):
        _require_positive({"--goal-ms": goal_ms, "--timeout": timeout})
        imported = _imported(inference_service, model_settings)
        options: dict[str, Any] = {
            "max_batch_rows": max_batch_size,
            "max_hold_s": None if max_latency is None else max_latency / 1000,
            "goal_s": None if goal_ms is None else goal_ms / 1000,
            "timeout_s": timeout,
            "policy": policy,
        }
        settings = _settings(
            {name: value for name, value in options.items() if value is not None},
            imported,
            protocol=protocol.value,
            concurrency=concurrency,
            idempotent=retry,
            health_path=health_path,
            headers=_header_rules(key_header, pass_header),
            max_body_bytes=max_body_bytes,
            max_queue_rows=max_queue_rows,
            clients=client_limits(
                header_timeout_s=header_timeout, body_timeout_s=body_timeout, max_connections=max_connections
            ),
            max_queue_bytes=max_queue_bytes,
            fair_by=None if fair_by is None else header_name(fair_by, "--fair-by"),
        )
    door_options = DoorOptions(
        host=host,
        port=port,
        admin_host=admin_host,
        admin_port=admin_port,
        api_key_file=api_key_file,
        tls_cert=tls_cert,
        tls_key=tls_key,
        tls_client_ca=tls_client_ca,
    )
    log_to_terminal(log_level.value)
    try:
        with refusals("proxy"), open_doors(door_options) as doors:
            drain = Drain(delay_s=drain_delay, timeout_s=drain_timeout)
            code = uvloop.run(_serve(urls, settings, doors, imported, drain=drain))
    except OSError as error:
        complain("proxy", error.strerror or error)
        code = 1
    raise typer.Exit(code)


def _require_positive(options: Mapping[str, float | None]) -> None:
    for option, value in options.items():
        if value is not None and not value > 0:
            raise WrongUsage(f"{option} must be above 0, got {value:g}")


def _imported(inference_service: Path | None, model_settings: Path | None) -> Imported | None:
    """What an existing configuration says, if there is one."""
    if inference_service is not None and model_settings is not None:
        raise WrongUsage("give --inference-service or --model-settings, not both")
    try:
        if inference_service is not None:
            return read_inference_service(inference_service)
        if model_settings is not None:
            return read_model_settings(model_settings, os.environ)
        return read_environment(os.environ)
    except OSError as error:
        raise WrongUsage(f"{error.filename}: {error.strerror}") from None
    except WrongSettings as error:
        raise WrongUsage(str(error)) from None


def _settings(given: Mapping[str, Any], imported: Imported | None, **others: Any) -> ProxySettings:
    """The options that were given, before what was imported, before the defaults."""
    said = {} if imported is None else imported.beside(given)
    settings = replace(_DEFAULTS, **said, **given, **others)
    try:
        settings.rules("model")
    except ValueError as error:
        told = str(error).removeprefix("api 'model': ").removeprefix("policy: ")
        raise in_options(ValueError(told), _OPTIONS) from None
    return settings


def _header_rules(keyed: Sequence[str] | None, passed: Sequence[str] | None) -> HeaderRules:
    """The defaults, and what was asked for beside them."""
    defaults = HeaderRules()
    return HeaderRules(
        keyed=defaults.keyed | _names(keyed, "--key-header"),
        passed=defaults.passed | _names(passed, "--pass-header"),
    )


def _names(texts: Sequence[str] | None, option: str) -> frozenset[bytes]:
    return frozenset(header_name(text, option) for text in texts or ())


async def _serve(
    urls: Sequence[str],
    settings: ProxySettings,
    doors: Doors,
    imported: Imported | None,
    *,
    drain: Drain,
) -> int:
    try:
        front = Proxy(urls, replace(settings, keys=doors.keys, admin=doors.admin is not None))
    except ValueError as error:
        raise in_options(error, _OPTIONS) from None
    front.start()
    async with listening(doors.port, _refuse_reload):
        return await serve_until_signal(
            front,
            doors,
            announcing=_announce(front, _banner(urls, settings, doors, imported)),
            drain=drain,
            close=lambda hurry: front.close(),
            reload=lambda: log.warning("SIGHUP: %s", _NOTHING_TO_RELOAD),
        )


async def _refuse_reload() -> Outcome:
    return Outcome(2, _NOTHING_TO_RELOAD)


async def _announce(front: Proxy, lines: Sequence[banner.Line]) -> None:
    """Say what is served, and when a server is there."""
    started = time.monotonic()
    banner.print_lines(lines)
    await front.ready.wait()
    print(f"ready after {time.monotonic() - started:.1f} s; Ctrl-C stops", flush=True)


def _banner(
    urls: Sequence[str], settings: ProxySettings, doors: Doors, imported: Imported | None
) -> list[banner.Line]:
    goal = "no goal" if settings.goal_s is None else f"goal {settings.goal_s * 1000:g} ms"
    calls = f"{settings.concurrency} call{'s'[: settings.concurrency > 1]} at a time each"
    timeout = f"{settings.timeout_s:g} s a call at most"
    manner = (
        f"protocol {settings.protocol}, policy {settings.policy}, at most {settings.max_batch_rows} rows a "
        f"call, held {settings.max_hold_s * 1000:g} ms at most, {goal}"
    )
    return [
        banner.headline(f"proxy for {', '.join(urls)}, {calls}, {timeout}"),
        banner.address("POST", doors.url, manner),
        *([] if imported is None else [banner.note(f"settings from {imported.source}")]),
        *banner.pages(doors),
    ]
