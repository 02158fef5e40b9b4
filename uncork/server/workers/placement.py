"""Where ``uncork serve`` starts its workers: on this machine, or on a Ray cluster."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from importlib.util import find_spec
from pathlib import Path

from uncork.config.errors import WrongUsage
from uncork.config.option_fields import flags
from uncork.server.options import ServeOptions
from uncork_gateway.backends.worker_listener import WorkerPort
from uncork_workers.extras import install_command
from uncork_workers.supervision.launcher import Launcher, Starter, over_unix
from uncork_workers.supervision.oom_kills import OomKills
from uncork_workers.supervision.processes import LocalWorkers, Processes

WORKERS_SOCKET = "workers.sock"
STANDBYS_SOCKET = "standby.sock"
# A cached module counts as current if its source was written again within the same second.
_RELOADING = {"PYTHONDONTWRITEBYTECODE": "1"}
_NEEDS_LOCAL = flags("reload", "gpus", "max_worker_memory", "python", "environment")
_NEEDS_OWN = flags("max_batches_per_worker", "max_worker_memory")
_NEEDS_RAY = flags("worker_cpus", "worker_gpus", "worker_address")

StarterWith = Callable[[ServeOptions], Starter]
"""Returns a starter of workers with other options."""


def check_placement(options: ServeOptions) -> None:
    """Check the options that depend on where workers run.

    Raises:
        WrongUsage: if they contradict each other, or Ray is not installed.
    """
    if options.ray_address is None:
        wrong = [flag for name, flag in _NEEDS_RAY.items() if getattr(options, name) is not None]
        if wrong:
            raise WrongUsage(f"{', '.join(wrong)} requires --on ray")
        useless = [flag for name, flag in _NEEDS_OWN.items() if getattr(options, name)]
        if useless and not options.worker_count.most:
            raise WrongUsage(
                f"{', '.join(useless)} cannot be combined with --workers 0: the gateway cannot replace "
                "workers that it did not start; give uncork worker --max-memory instead"
            )
        return
    wrong = [flag for name, flag in _NEEDS_LOCAL.items() if getattr(options, name)]
    if wrong:
        instead = "; give --worker-gpus" if options.gpus else ""
        raise WrongUsage(
            f"{', '.join(wrong)} works only with workers on this machine, not with --on ray{instead}"
        )
    if options.worker_tls_client_ca is not None:
        raise WrongUsage(
            "--worker-tls-client-ca cannot be combined with --on ray: its workers have no certificate"
        )
    if find_spec("ray") is None:
        raise WrongUsage(f"--on ray requires Ray; run {install_command('ray')}")


@asynccontextmanager
async def launching(
    options: ServeOptions,
    folder: Path,
    worker_port: WorkerPort | None,
    *,
    on_waiting: Callable[[Sequence[int], str], object],
    oom_kills: OomKills,
) -> AsyncIterator[tuple[Launcher, StarterWith]]:
    """Give what starts the workers, until the block ends; it kills those that are left.

    With it comes what starts workers of its own with other options.

    ``on_waiting`` is called with the indexes of workers that cannot start at present, and why. ``oom_kills``
    counts those that the kernel kills on this machine.

    Raises:
        WrongUsage: if they can never be started.
    """
    if options.ray_address is None:
        dialing = over_unix(str(folder / WORKERS_SOCKET), str(folder / STANDBYS_SOCKET))
        processes = Processes(local_workers(options), dialing=dialing, oom_kills=oom_kills)
        try:
            yield processes, lambda others: processes.starter(local_workers(others))
        finally:
            await processes.close()
        return
    assert worker_port is not None
    # Only with Ray: it unpacks archives and talks to a helper process, which other servers do not.
    from uncork.server.workers.ray_placement import launching_on_ray

    async with launching_on_ray(options, folder, worker_port, on_waiting=on_waiting) as launched:
        yield launched


def local_workers(options: ServeOptions) -> LocalWorkers:
    """Return how to start the workers of a service on this machine."""
    return LocalWorkers(
        target=options.service,
        workers=options.all_workers or options.worker_count.most,
        python=options.interpreter,
        arguments=options.worker_arguments,
        gpus=options.gpu_names,
        environment={**(_RELOADING if options.reload else {}), **options.variables},
    )
