"""Workers on other machines: network namespaces that stand for hosts, and what restarts their workers."""

import asyncio
import secrets
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.namespaces import Network
from uncork_loadtests.servers import BenchError

GATEWAY = "gateway"
_PORT = 7000
_RESTART_EVERY_S = 0.2
_END_S = 10.0


class Hosts:
    """Keeps ``workers`` workers alive, spread over hosts, as a process manager on each of them would."""

    def __init__(
        self, network: Network, names: Sequence[str], *, target: str, workers: int, token: Path
    ) -> None:
        self.names = list(names)
        self._size = workers
        self.network = network
        self._token = token
        self._command = [sys.executable, "-m", "uncork", "worker", target, "--token-file", str(token)]
        self._command += ["--gateway", f"{network.address(GATEWAY)}:{_PORT}", "--log-level", "error"]
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        """By the number of the worker; host ``number % len(names)`` runs it."""

    @property
    def gateway_arguments(self) -> list[str]:
        """The arguments of the gateway for these workers."""
        address, token = self.network.address(GATEWAY), self._token
        port = ["--worker-port", str(_PORT), "--worker-host", address, "--worker-insecure"]
        return ["--workers", "0", *port, "--worker-token-file", str(token)]

    def start(self) -> None:
        """Start the workers that are not running."""
        for number in range(self._size):
            process = self._processes.get(number)
            if process is None or process.poll() is not None:
                self._processes[number] = self._start(self.names[number % len(self.names)])

    def _start(self, name: str) -> "subprocess.Popen[bytes]":
        command = [*self.network.inside(name), *self._command, "--node", name]
        quiet = subprocess.DEVNULL  # the gateway logs what happens to workers
        return subprocess.Popen(command, stdin=quiet, stdout=quiet, stderr=quiet, start_new_session=True)

    async def keep_alive(self) -> None:
        """Restart workers that have ended, until cancelled."""
        while True:
            self.start()
            await asyncio.sleep(_RESTART_EVERY_S)

    def pids(self, name: str | None = None) -> list[int]:
        """Return the live workers of a host, or of all."""
        return sorted(
            process.pid
            for number, process in self._processes.items()
            if process.poll() is None and name in (None, self.names[number % len(self.names)])
        )

    def stop(self) -> None:
        """Kill all workers."""
        for process in self._processes.values():
            process.kill()
            process.wait(_END_S)


@contextmanager
def hosts_on_this_machine(
    names: Sequence[str], *, target: str, workers: int, folder: Path
) -> Iterator[Hosts]:
    """Put this process into a network of its own, with hosts, until the block ends.

    Raises:
        BenchError: if that needs rights, or a program, that are missing.
    """
    network = Network([GATEWAY, *names])
    token = folder / "token"
    token.write_text(secrets.token_hex())
    hosts = Hosts(network, names, target=target, workers=workers, token=token)
    try:
        try:
            network.create()
        except (OSError, subprocess.CalledProcessError) as error:
            raise BenchError(f"--hosts needs root and iproute2 for network namespaces: {error}") from error
        with network.entered(GATEWAY):
            hosts.start()
            yield hosts
    finally:
        hosts.stop()
        network.delete()
