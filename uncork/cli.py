"""The command line. Exit codes: 0 fine, 1 the job failed, 2 wrong usage."""

from __future__ import annotations

from importlib.metadata import version
from typing import Annotated

import typer

from uncork.compare import compare
from uncork.complaints import complain
from uncork.doors import DoorOptions
from uncork.loadtest import loadtest
from uncork.proxy import proxy
from uncork.reload import reload as reload_workers
from uncork.serve import ServeOptions, run
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
from uncork.serving import Drain
from uncork.simulate import simulate
from uncork.sizes import read_size
from uncork.tune import tune
from uncork.usage import header_name, refusals
from uncork_dispatcher import POLICIES
from uncork_workers.gpus import read_gpus
from uncork_workers.recycling import RecyclingLimits

app = typer.Typer(
    name="uncork",
    help="An adaptive micro-batching gateway for model services.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    add_completion=False,
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"uncork {version('uncork')}")
        raise typer.Exit


@app.callback()
def _uncork(
    _version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version."),
    ] = False,
) -> None:
    """An adaptive micro-batching gateway for model services."""


@app.command()
def serve(
    target: Annotated[
        str, typer.Argument(metavar="TARGET", help="The service: MODULE:SERVICE or FILE.py:SERVICE.")
    ],
    workers: Annotated[
        int, typer.Option(min=1, help="Worker processes; each holds its own copy of the model.")
    ] = 1,
    host: Host = "127.0.0.1",
    port: Port = 3000,
    policy: Annotated[
        str | None,
        typer.Option(
            help=f"When to release a batch, for all apis: {', '.join(POLICIES)}, fixed:MS or fixed:MS:ROWS.",
            show_default="as each api says, else cork",
        ),
    ] = None,
    mb_max_latency: Annotated[
        float | None,
        typer.Option(
            help="Latency goal in milliseconds, for all apis.", show_default="as each api says, else 300"
        ),
    ] = None,
    mb_max_batch_size: Annotated[
        int | None,
        typer.Option(help="Most rows in a batch, for all apis.", show_default="as each api says, else 1000"),
    ] = None,
    max_body_bytes: MaxBodyBytes = 64 * 2**20,
    max_queue_rows: Annotated[
        int, typer.Option(min=1, help="Rows (or their cost) held per api; requests beyond get 503.")
    ] = 20_000,
    drain_delay: DrainDelay = 0.0,
    header_timeout: HeaderTimeout = 10.0,
    body_timeout: BodyTimeout = 30.0,
    max_connections: MaxConnections = None,
    max_queue_bytes: MaxQueueBytes = 256 * 2**20,
    fair_by: FairBy = None,
    drain_timeout: DrainTimeout = 30.0,
    max_batches_per_worker: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Batches after which a worker is replaced, without a gap; looked at once a second.",
            show_default="never",
        ),
    ] = None,
    max_worker_memory: Annotated[
        str | None,
        typer.Option(
            metavar="SIZE",
            help="Resident memory above which a worker is replaced, without a gap: bytes, 500MB, 2GiB.",
            show_default="never",
        ),
    ] = None,
    log_level: LogLevelOption = LogLevel.info,
    reload: Annotated[
        bool,
        typer.Option(
            "--reload", help="Replace the workers when the service's files change; for development."
        ),
    ] = False,
    gpus: Annotated[
        str | None,
        typer.Option(
            help="One GPU for each worker, in turn: a count of GPUs, or their numbers or UUIDs, such as 0,1.",
            show_default="every worker sees all",
        ),
    ] = None,
    admin_host: AdminHost = "127.0.0.1",
    admin_port: AdminPort = None,
    api_key_file: ApiKeyFile = None,
    tls_cert: TlsCert = None,
    tls_key: TlsKey = None,
    tls_client_ca: TlsClientCa = None,
    warmup_seconds: Annotated[
        float,
        typer.Option(
            min=0, help="Seconds in which each worker warms up apis that give an example; 0: not at all."
        ),
    ] = 10.0,
) -> None:
    """Serve a model service behind a gateway that merges concurrent requests into batches."""
    overrides = {
        "policy": policy,
        "mb_max_latency": mb_max_latency,
        "mb_max_batch_size": mb_max_batch_size,
    }
    with refusals("serve"):
        fair_by_name = None if fair_by is None else header_name(fair_by, "--fair-by")
    options = ServeOptions(
        target=target,
        workers=workers,
        doors=DoorOptions(
            host=host,
            port=port,
            admin_host=admin_host,
            admin_port=admin_port,
            api_key_file=api_key_file,
            tls_cert=tls_cert,
            tls_key=tls_key,
            tls_client_ca=tls_client_ca,
        ),
        overrides={name: value for name, value in overrides.items() if value is not None},
        max_body_bytes=max_body_bytes,
        max_queue_rows=max_queue_rows,
        drain=Drain(delay_s=drain_delay, timeout_s=drain_timeout),
        clients=client_limits(
            header_timeout_s=header_timeout, body_timeout_s=body_timeout, max_connections=max_connections
        ),
        max_queue_bytes=max_queue_bytes,
        fair_by=fair_by_name,
        log_level=log_level.value,
        reload=reload,
        gpus=_read_gpus(gpus),
        warmup_s=warmup_seconds,
        recycling=RecyclingLimits(
            batches=max_batches_per_worker, memory_bytes=_read_size(max_worker_memory, "--max-worker-memory")
        ),
    )
    try:
        with refusals("serve"):
            code = run(options)
    except OSError as error:
        complain("serve", error.strerror or error)
        code = 1
    raise typer.Exit(code)


def _read_gpus(text: str | None) -> list[str]:
    try:
        return [] if text is None else read_gpus(text)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--gpus") from None


def _read_size(text: str | None, option: str) -> int | None:
    try:
        return None if text is None else read_size(text)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint=option) from None


app.command("reload")(reload_workers)
app.command()(proxy)
app.command()(simulate)
app.command()(loadtest)
app.command()(compare)
app.command()(tune)


def main() -> None:
    """Entry point of the ``uncork`` command."""
    app()
