"""Checks of the settings of ``uncork serve``, before it starts and when they are read again."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec

from uncork.config.errors import WrongUsage
from uncork.server.credentials import check_watched, read_worker_credentials
from uncork.server.listeners import check_listeners
from uncork.server.options import ServeOptions
from uncork.server.services import errors_of, services_of, with_all_workers
from uncork.server.workers.placement import check_placement
from uncork.server.workers.requirements import require_resources
from uncork.server.workers.worker_port import check_connections, check_worker_port
from uncork_workers.extras import install_command


def check_options(options: ServeOptions, services: dict[str, ServeOptions]) -> None:
    """Check the options that depend on each other, those of the server and of each service.

    Raises:
        WrongUsage: if they contradict each other.
    """
    check_watched(options)
    for name, one in services.items():
        with errors_of(name):
            check_placement(one)
            check_connections(one, workers=one.worker_count.most, on_ray=one.ray_address is not None)


def to_start(
    options: ServeOptions, *, warn: Callable[[str], object]
) -> tuple[ServeOptions, dict[str, ServeOptions]]:
    """Return the options of a server and of each service, after all checks that need no port.

    ``warn`` gets the reason if GPUs cannot be counted.

    Raises:
        WrongUsage: if the server cannot start with them.
    """
    if options.reload and find_spec("watchfiles") is None:
        raise WrongUsage(f"--reload requires watchfiles; run {install_command('reload')}")
    services = services_of(options)
    check_options(options, services)
    # Only now: a reload may remove the last service with a port, but not these options.
    has_port = any(one.worker_port is not None or one.ray_address is not None for one in services.values())
    check_worker_port(options, has_port=has_port)
    check_listeners(options)
    for name, one in services.items():
        with errors_of(name):
            read_worker_credentials(one, on_ray=one.ray_address is not None)
    require_resources(services, warn=warn)
    return with_all_workers(options, services), services
