"""Start the workers of ``uncork serve`` on a Ray cluster."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from uncork.config.errors import WrongUsage
from uncork.server.options import ServeOptions
from uncork.server.workers.worker_port import is_loopback, read_worker_address
from uncork_gateway.backends.worker_listener import WorkerPort
from uncork_workers.definition.models.targets import is_model
from uncork_workers.ray.code_shipping import Packer
from uncork_workers.ray.launcher import RayLauncher, RayWorkers
from uncork_workers.ray.messages import Connected, RayUnusable
from uncork_workers.supervision.launcher import Dialing, Launcher, Starter, over_tcp
from uncork_workers.wire.dialing import Address

_CERTIFICATE = re.compile(r"-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----\n?", re.DOTALL)


@asynccontextmanager
async def launching_on_ray(
    options: ServeOptions,
    folder: Path,
    worker_port: WorkerPort,
    *,
    on_waiting: Callable[[Sequence[int], str], object],
) -> AsyncIterator[tuple[Launcher, Callable[[ServeOptions], Starter]]]:
    """As :func:`~uncork.server.workers.placement.launching`; ``folder`` keeps archives of the service."""
    packer, target = _shipped(options.service, folder)
    launcher = RayLauncher(
        _workers(options, target),
        dialing=lambda connected: dialing(options, worker_port, connected),
        packer=packer,
        on_waiting=on_waiting,
    )
    try:
        await launcher.start()
    except (RayUnusable, OSError) as error:
        raise WrongUsage(str(error)) from None
    try:
        yield launcher, lambda others: launcher.starter(_workers(others, target))
    finally:
        await launcher.close()


def _workers(options: ServeOptions, target: str) -> RayWorkers:
    assert options.ray_address is not None
    return RayWorkers(
        address=options.ray_address,
        target=target,
        cpus=options.worker_cpus if options.worker_cpus is not None else 1.0,
        gpus=options.worker_gpus or 0.0,
        arguments=options.worker_arguments,
    )


def dialing(options: ServeOptions, port: WorkerPort, connected: Connected) -> Dialing:
    """Return how workers on a Ray cluster reach the gateway.

    Raises:
        WrongUsage: if they cannot.
    """
    host, number = port.listener.getsockname()[:2]
    if options.worker_address is not None:
        host, given = read_worker_address(options.worker_address)
        number = given or number
    elif connected.other_machines and is_loopback(host):
        raise WrongUsage(
            f"the Ray cluster has nodes on other machines ({', '.join(connected.other_machines[:3])}), which "
            f"cannot reach --worker-host {host}; give --worker-host 0.0.0.0 with --worker-tls-cert or "
            "--worker-insecure"
        )
    elif ipaddress.ip_address(host).is_unspecified:
        host = connected.here
    certificate = ""
    if port.tls is not None:
        assert options.worker_tls_cert is not None
        # The file may also contain the private key.
        certificate = "".join(_CERTIFICATE.findall(options.worker_tls_cert.read_text()))
    return over_tcp(str(Address(host, number)), port.launch_secret, certificate=certificate)


def _shipped(target: str, folder: Path) -> tuple[Packer | None, str]:
    """Return what packs the folder of a FILE.py target, and the target as the nodes find it.

    A model is not packed: it may be large, and clusters share a file system for such files.
    """
    if is_model(target):
        return None, str(Path(target).absolute())
    place, _, service = target.rpartition(":")
    if not place.endswith(".py"):
        return None, target
    file = Path(place).resolve()
    if not file.is_file():
        raise WrongUsage(f"{place}: no such file")
    return Packer(file.parent, folder), f"{file.name}:{service}"
