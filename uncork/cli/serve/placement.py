"""Where ``uncork serve`` starts its workers: on this machine, or on a Ray cluster."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from importlib.util import find_spec
from pathlib import Path

from uncork.cli.serve.options import ServeOptions
from uncork.cli.serve.places import read_worker_address
from uncork.cli.serve.worker_port import is_loopback
from uncork.config.errors import WrongUsage
from uncork_gateway.backends.worker_listener import WorkerPort
from uncork_workers.ray.code_shipping import Packer
from uncork_workers.ray.launcher import RayLauncher, RayUnusable, RayWorkers
from uncork_workers.ray.messages import Connected
from uncork_workers.supervision.launcher import Dialing, Launcher, over_tcp, over_unix
from uncork_workers.supervision.processes import Processes
from uncork_workers.wire.dialing import Address

WORKERS_SOCKET = "workers.sock"
STANDBYS_SOCKET = "standby.sock"
# A cached module counts as current if its source was written again within the same second.
_RELOADING = {"PYTHONDONTWRITEBYTECODE": "1"}
_NEEDS_LOCAL = {"reload": "--reload", "gpus": "--gpus", "max_worker_memory": "--max-worker-memory"}
_NEEDS_RAY = {
    "worker_cpus": "--worker-cpus",
    "worker_gpus": "--worker-gpus",
    "worker_address": "--worker-address",
}
_CERTIFICATE = re.compile(r"-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----\n?", re.DOTALL)


def check_placement(options: ServeOptions) -> None:
    """Check the options that depend on where workers run.

    Raises:
        WrongUsage: if they contradict each other, or Ray is not installed.
    """
    if options.ray_address is None:
        wrong = [flag for name, flag in _NEEDS_RAY.items() if getattr(options, name) is not None]
        if wrong:
            raise WrongUsage(f"{', '.join(wrong)} requires --on ray")
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
        raise WrongUsage("--on ray requires Ray; run pip install 'uncork[ray]'")


@asynccontextmanager
async def launching(
    options: ServeOptions,
    folder: Path,
    worker_port: WorkerPort | None,
    *,
    on_waiting: Callable[[Sequence[int], str], object],
) -> AsyncIterator[Launcher]:
    """Give what starts the workers, until the block ends; it kills those that are left.

    ``on_waiting`` is called as by :class:`RayLauncher`.

    Raises:
        WrongUsage: if they can never be started.
    """
    arguments = ("--log-level", options.log_level, *options.worker_arguments)
    if options.ray_address is None:
        yield Processes(
            options.service,
            workers=options.worker_count.most,
            dialing=over_unix(str(folder / WORKERS_SOCKET), str(folder / STANDBYS_SOCKET)),
            arguments=arguments,
            gpus=options.gpu_names,
            environment=_RELOADING if options.reload else {},
        )
        return
    assert worker_port is not None
    packer, target = _shipped(options.service, folder)
    launcher = RayLauncher(
        RayWorkers(
            address=options.ray_address,
            target=target,
            cpus=options.worker_cpus if options.worker_cpus is not None else 1.0,
            gpus=options.worker_gpus or 0.0,
            arguments=arguments,
        ),
        dialing=lambda connected: dialing(options, worker_port, connected),
        packer=packer,
        on_waiting=on_waiting,
    )
    try:
        await launcher.start()
    except (RayUnusable, OSError) as error:
        raise WrongUsage(str(error)) from None
    try:
        yield launcher
    finally:
        await launcher.close()


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
    return over_tcp(str(Address(host, number)), port.token, certificate=certificate)


def _shipped(target: str, folder: Path) -> tuple[Packer | None, str]:
    """Return what packs the folder of a FILE.py target, and the target as the nodes find it."""
    place, _, service = target.rpartition(":")
    if not place.endswith(".py"):
        return None, target
    file = Path(place).resolve()
    if not file.is_file():
        raise WrongUsage(f"{place}: no such file")
    return Packer(file.parent, folder), f"{file.name}:{service}"
