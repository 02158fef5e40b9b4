"""``uncork check``."""

import asyncio
import os
from collections.abc import Callable, Mapping
from functools import partial
from typing import Annotated

import typer

from uncork.cli.check.figures import Figures, Plan
from uncork.cli.check.judging import judge
from uncork.cli.check.measuring import CheckFailed, measure
from uncork.cli.check.text import as_json, text
from uncork.cli.configurable import takes_options
from uncork.cli.terminal import INTERRUPTED, print_error, show, telling, write_files
from uncork.cli.usage import refusals, require_writable
from uncork.config.errors import WrongUsage
from uncork.server.options import ServeOptions
from uncork.server.private_folders import own_folder
from uncork.server.running.settings import to_start
from uncork.server.services import about, errors_of
from uncork_gateway.services.paths import check_paths
from uncork_workers.cores import usable_cores
from uncork_workers.memory import free_bytes
from uncork_workers.wire.values import DefinitionError


@takes_options
def check(
    options: ServeOptions,
    *,
    client_timeout_ms: Annotated[
        float | None,
        typer.Option(help="Milliseconds after which clients give up.", show_default="not checked"),
    ] = None,
    seconds: Annotated[
        float, typer.Option(min=0.1, help="Total seconds to measure batches, over all services and APIs.")
    ] = 10.0,
    strict: Annotated[bool, typer.Option("--strict", help="Exit with 1 on warnings, too.")] = False,
    json: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Write the findings as JSON to this file; - prints them."),
    ] = None,
) -> None:
    """Start services, measure their batches, and report settings that conflict.

    Takes the options of `uncork serve`. Also reports results that depend on other rows of the batch. Services
    are measured one after the other; the resources that they need are added up. The exit code is 1 if a
    finding is an error.
    """
    with refusals("check"):
        require_writable({"--json": json})
        if client_timeout_ms is not None and not client_timeout_ms > 0:
            raise WrongUsage(f"--client-timeout-ms must be above 0, got {client_timeout_ms:g}")
        _, services = to_start(options, warn=partial(typer.echo, err=True))
        plans = {name: _plan_of(own, client_timeout_ms=client_timeout_ms) for name, own in services.items()}
        try:
            figures = _measured(services, plans, seconds=seconds)
        except CheckFailed as error:
            print_error("check", error)
            raise typer.Exit(1) from None
        except KeyboardInterrupt:
            raise typer.Exit(INTERRUPTED) from None
    findings = judge(figures)
    code = write_files("check", json, partial(as_json, figures, findings))
    if json != "-":
        show(text(figures, findings))
    fatal = ("error", "warning") if strict else ("error",)
    raise typer.Exit(1 if any(one.severity in fatal for one in findings) else code)


def _plan_of(options: ServeOptions, *, client_timeout_ms: float | None) -> Plan:
    """Return the plan as far as it is known before a worker starts."""
    return Plan(
        workers=max(1, options.worker_count.most),
        gpus=tuple(options.gpu_names),
        cores=usable_cores(),
        threads=_threads_in({**os.environ, **options.variables}),
        free_bytes=free_bytes(),
        max_worker_memory_bytes=options.max_worker_bytes,
        max_body_bytes=options.max_body_bytes,
        max_queue_rows=options.max_queue_rows,
        max_queue_bytes=options.max_queue_bytes,
        max_connections=options.max_connections,
        possible_connections=options.most_connections,
        drain_timeout_s=options.drain_timeout,
        host=options.host,
        admin_host=None if options.admin_port is None else options.admin_host,
        has_keys=options.api_key_file is not None,
        has_tls=options.tls_cert is not None,
        is_elsewhere=options.ray_address is not None,
        client_timeout_ms=client_timeout_ms,
    )


def _threads_in(environment: Mapping[str, str]) -> int | None:
    """Return OMP_NUM_THREADS; None if unset, which gives each worker its share of the cores."""
    text = environment.get("OMP_NUM_THREADS", "")
    return int(text) if text.isdecimal() else None


def _measured(
    services: Mapping[str, ServeOptions], plans: Mapping[str, Plan], *, seconds: float
) -> dict[str, Figures]:
    """Measure services one after the other."""
    found: dict[str, Figures] = {}
    with telling() as tell:
        for name, options in services.items():
            with errors_of(name):
                each_s = seconds / len(services)
                found[name] = _measured_one(name, options, plans[name], seconds=each_s, tell=tell)
            try:
                check_paths(name, found[name].paths, {one: found[one].paths for one in found if one != name})
            except ValueError as error:
                raise WrongUsage(str(error)) from None
    return found


def _measured_one(
    name: str, options: ServeOptions, plan: Plan, *, seconds: float, tell: Callable[[str], None]
) -> Figures:
    def tell_of_it(step: str) -> None:
        tell(about(name, step))

    try:
        with own_folder() as folder:
            return asyncio.run(measure(name, options, plan, folder, seconds=seconds, tell=tell_of_it))
    except DefinitionError as error:
        raise WrongUsage(str(error)) from None
    except (CheckFailed, OSError) as error:
        says = error.strerror if isinstance(error, OSError) and not error.filename else None
        raise CheckFailed(f"cannot start the service{f' {name}' if name else ''}: {says or error}") from None
