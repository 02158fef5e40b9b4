"""``uncork check``."""

import asyncio
from functools import partial
from typing import Annotated

import typer

from uncork.cli.check.judging import judge
from uncork.cli.check.machine import plan_of
from uncork.cli.check.measuring import CheckFailed, measure
from uncork.cli.check.text import as_json, text
from uncork.cli.configurable import takes_options
from uncork.cli.errors import print_error
from uncork.cli.serve.gpus import require_gpus
from uncork.cli.serve.options import ServeOptions
from uncork.cli.terminal import INTERRUPTED, show, telling, write_files
from uncork.cli.usage import refusals, require_writable
from uncork.config.errors import WrongUsage
from uncork.server.private_folders import own_folder
from uncork_workers.wire.schema import DefinitionError


@takes_options
def check(
    options: ServeOptions,
    *,
    client_timeout_ms: Annotated[
        float | None,
        typer.Option(help="Milliseconds after which clients give up.", show_default="not checked"),
    ] = None,
    seconds: Annotated[
        float, typer.Option(min=0.1, help="Total seconds to measure batches, over all APIs.")
    ] = 10.0,
    strict: Annotated[bool, typer.Option("--strict", help="Exit with 1 on warnings, too.")] = False,
    json: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Write the findings as JSON to this file; - prints them."),
    ] = None,
) -> None:
    """Start a service, measure its batches, and report settings that conflict.

    Takes the options of `uncork serve`. The exit code is 1 if a finding is an error.
    """
    with refusals("check"):
        require_writable({"--json": json})
        if client_timeout_ms is not None and not client_timeout_ms > 0:
            raise WrongUsage(f"--client-timeout-ms must be above 0, got {client_timeout_ms:g}")
        require_gpus(options, warn=partial(typer.echo, err=True))
        try:
            plan = plan_of(options, client_timeout_ms=client_timeout_ms)
            with telling() as tell, own_folder() as folder:
                figures = asyncio.run(measure(options, plan, folder, seconds=seconds, tell=tell))
        except DefinitionError as error:
            raise WrongUsage(str(error)) from None
        except CheckFailed as error:
            print_error("check", f"cannot start the service: {error}")
            raise typer.Exit(1) from None
        except KeyboardInterrupt:
            raise typer.Exit(INTERRUPTED) from None
    findings = judge(figures)
    code = write_files("check", json, partial(as_json, figures, findings))
    if json != "-":
        show(text(figures, findings))
    fatal = ("error", "warning") if strict else ("error",)
    raise typer.Exit(1 if any(one.severity in fatal for one in findings) else code)
