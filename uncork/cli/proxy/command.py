"""``uncork proxy``."""

import asyncio
import os
import time
from collections.abc import Sequence
from dataclasses import replace

import typer
import uvloop

from uncork.cli.configurable import takes_options
from uncork.cli.proxy.imported_settings import Imported
from uncork.cli.proxy.options import OPTIONS, ProxyOptions
from uncork.cli.proxy.running import RunningProxy
from uncork.cli.serve import banner
from uncork.cli.usage import exit_code, in_options
from uncork.server.control_socket import DIFF, RELOAD, listening
from uncork.server.credentials import check_watched
from uncork.server.listeners import Listeners, open_listeners
from uncork.server.otlp_metrics import sending_metrics
from uncork.server.servers import Servers
from uncork.server.serving import log_to_terminal, serve_until_signal
from uncork.server.tracing import tracing
from uncork_dispatcher.wording import plural
from uncork_gateway.front_end import FrontEnd
from uncork_gateway.proxy import Proxy
from uncork_gateway.settings import ProxySettings
from uncork_workers.process.logs import LogFormat


@takes_options
def proxy(options: ProxyOptions) -> None:
    """Batch concurrent requests to model servers.

    The servers may speak KServe V1, V2 or TensorFlow Serving REST over HTTP, or V2 or TensorFlow Serving over
    gRPC. Other requests are passed through unchanged. Options override imported settings.
    """
    raise typer.Exit(exit_code("proxy", lambda: _run(options)))


def _run(options: ProxyOptions) -> int:
    options.check_servers()
    imported = options.imported()
    settings = options.settings(imported)
    check_watched(options)
    log_to_terminal(options.log_level, options.log_format)
    with open_listeners(options) as listeners, tracing(options.traces, os.environ) as traces:
        settings = replace(
            settings,
            traces=traces,
            keys=listeners.credentials.keys,
            admin=listeners.admin is not None,
            grpc=listeners.grpc is not None,
        )
        return uvloop.run(_serve(settings, listeners, imported, options))


async def _serve(
    settings: ProxySettings, listeners: Listeners, imported: Imported | None, options: ProxyOptions
) -> int:
    try:
        proxy = Proxy(options.servers, settings)
    except ValueError as error:
        raise in_options(error, OPTIONS) from None
    proxy.start()
    servers = Servers(proxy.front_end, listeners)
    running = RunningProxy(proxy, servers, options, settings, listeners.credentials)
    watching = asyncio.create_task(running.watch()) if options.watch_config else None

    async def close(hurry: asyncio.Event) -> None:
        if watching is not None:
            watching.cancel()
        await proxy.close()

    handlers = {RELOAD: running.reload_requested, DIFF: running.diff_requested}
    metrics = proxy.front_end.exposition.registry
    async with listening(listeners.port, handlers), sending_metrics(metrics, os.environ):
        return await serve_until_signal(
            proxy.front_end,
            servers,
            announcing=_announce(
                proxy.front_end,
                _banner(options.servers, settings, listeners, imported),
                options.log_format,
            ),
            options=lambda: running.options,
            close=close,
            reload=running.on_hangup,
        )


async def _announce(front: FrontEnd, lines: Sequence[banner.Line], log_format: LogFormat) -> None:
    """Print what is served, and when a server is available."""
    started = time.monotonic()
    banner.print_lines(lines, log_format)
    await front.ready.wait()
    banner.print_ready(time.monotonic() - started, log_format)


def _banner(
    urls: Sequence[str], settings: ProxySettings, listeners: Listeners, imported: Imported | None
) -> list[banner.Line]:
    goal = "no goal" if settings.goal_s is None else f"goal {settings.goal_s * 1000:g} ms"
    calls = f"{plural(settings.concurrency, 'concurrent call')} per server"
    timeout = f"timeout {settings.timeout_s:g} s"
    manner = (
        f"protocol {settings.protocol}, policy {settings.policy}, "
        f"at most {plural(settings.max_batch_rows, 'row')} per call, "
        f"hold at most {settings.max_hold_s * 1000:g} ms, {goal}"
    )
    return [
        banner.headline(f"proxy for {', '.join(urls)}, {calls}, {timeout}"),
        *(banner.grpc(listeners, manner) or [banner.address("POST", listeners.url, manner)]),
        *([] if imported is None else [banner.note(f"settings imported from {imported.source}")]),
        *banner.pages(listeners),
    ]
