"""The options of ``uncork serve``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer

from uncork.cli.serve.server_options import ServerOptions, readable
from uncork.cli.sizes import read_size
from uncork.config.errors import WrongUsage
from uncork.config.names import check_policy
from uncork.config.sources import Kind, Source
from uncork_dispatcher import POLICIES
from uncork_workers.supervision.gpus import read_gpus
from uncork_workers.supervision.recycling import RecyclingLimits
from uncork_workers.wire.overrides import Override

_FOR_ALL_APIS = ("policy", "mb_max_latency", "mb_max_batch_size")


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
            WrongUsage: if it is missing.
        """
        if not self.target:
            raise WrongUsage("TARGET is missing: the service, as MODULE:SERVICE or FILE.py:SERVICE")
        return self.target

    @property
    def overrides(self) -> list[Override]:
        """Settings that replace those of the APIs, in rising order of precedence."""
        flag = Source(Kind.FLAG, "")
        for_all = [
            (source.kind, Override(argument=name, value=getattr(self, name), source=source.name))
            for name in _FOR_ALL_APIS
            for source in [self.sources.get(name, flag)]
            if getattr(self, name) is not None
        ]
        ranked = sorted([*for_all, *self.api_overrides], key=lambda one: one[0])
        return [override for _, override in ranked]

    @property
    def recycling(self) -> RecyclingLimits:
        memory = self.max_worker_memory
        return RecyclingLimits(
            batches=self.max_batches_per_worker, memory_bytes=None if memory is None else read_size(memory)
        )

    @property
    def gpu_names(self) -> list[str]:
        """The GPUs assigned to workers in turn; empty if every worker sees all."""
        return [] if self.gpus is None else read_gpus(self.gpus)
