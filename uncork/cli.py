"""The command line. Exit codes: 0 fine, 1 the job failed, 2 wrong usage."""

from __future__ import annotations

from importlib.metadata import version
from typing import Annotated

import typer

from uncork.compare import compare
from uncork.loadtest import loadtest
from uncork.proxy import proxy
from uncork.serve import ServeOptions, UsageError, run
from uncork.serve_options import (
    DrainTimeout,
    FairBy,
    Host,
    LogLevel,
    LogLevelOption,
    MaxBodyBytes,
    MaxQueueBytes,
    Port,
)
from uncork.simulate import simulate
from uncork.tune import tune
from uncork.usage import header_name, refusals
from uncork_dispatcher import POLICIES
from uncork_workers.supervisor import read_gpus

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
    max_queue_bytes: MaxQueueBytes = 256 * 2**20,
    fair_by: FairBy = None,
    drain_timeout: DrainTimeout = 30.0,
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
        host=host,
        port=port,
        overrides={name: value for name, value in overrides.items() if value is not None},
        max_body_bytes=max_body_bytes,
        max_queue_rows=max_queue_rows,
        max_queue_bytes=max_queue_bytes,
        fair_by=fair_by_name,
        drain_timeout_s=drain_timeout,
        log_level=log_level.value,
        reload=reload,
        gpus=_read_gpus(gpus),
    )
    try:
        code = run(options)
    except UsageError as error:
        typer.echo(f"uncork serve: {error}", err=True)
        code = 2
    except OSError as error:
        typer.echo(f"uncork serve: {error.strerror or error}", err=True)
        code = 1
    raise typer.Exit(code)


def _read_gpus(text: str | None) -> list[str]:
    try:
        return [] if text is None else read_gpus(text)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--gpus") from None


app.command()(proxy)
app.command()(simulate)
app.command()(loadtest)
app.command()(compare)
app.command()(tune)


def main() -> None:
    """Entry point of the ``uncork`` command."""
    app()
