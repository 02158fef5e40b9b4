"""Start and kill worker processes on a Ray cluster, through a helper process."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from secrets import token_hex

from uncork_workers.plural import plural
from uncork_workers.process.worker import EXIT_UNREACHABLE
from uncork_workers.ray.code_shipping import Packer
from uncork_workers.ray.helper_process import HELPER, HelperProcess
from uncork_workers.ray.messages import (
    Attach,
    Code,
    Command,
    Connect,
    Connected,
    Ended,
    Event,
    Kill,
    Launch,
    Started,
    Waiting,
)
from uncork_workers.supervision.gpus import GPU_VARIABLE
from uncork_workers.supervision.launcher import Dialing, WorkerProcess
from uncork_workers.supervision.processes import describe_exit
from uncork_workers.supervision.supervisor import backoff_s

log = logging.getLogger("uncork.gateway")

# Ray Client gives up after twice 30 s; Ray itself may try for ever where something else listens.
_CONNECT_S = 90.0


class RayUnusable(Exception):
    """The cluster cannot be used; the message says why, for people."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RayWorkers:
    """The workers to start on a cluster.

    Attributes:
        address: of the cluster, as for ``ray.init``.
        target: the service, as the nodes find it.
        cpus, gpus: what Ray reserves for each worker.
        arguments: additional arguments of the workers.
    """

    address: str
    target: str
    cpus: float = 1.0
    gpus: float = 0.0
    arguments: Sequence[str] = ()

    @property
    def needs(self) -> dict[str, float]:
        return {"CPU": self.cpus, "GPU": self.gpus}

    @property
    def environment(self) -> dict[str, str]:
        """Additional environment variables: Ray hides no GPU from an actor that reserves none."""
        return {} if self.gpus else {GPU_VARIABLE: ""}


@dataclass(slots=True)
class _Planned:
    """A launch that has not ended."""

    worker: WorkerProcess
    standby: bool
    code: Code | None
    is_sent: bool = False
    """Whether a helper has been asked for it."""
    is_started: bool = False


class RayLauncher:
    """The worker processes of one service on a Ray cluster; a :class:`Launcher`.

    Args:
        workers: what to start.
        dialing: returns how workers reach the gateway, given this machine's address in the cluster's network.
        packer: packs the folder of the service; None for an installed module.
        on_waiting: called with the indexes of workers that cannot start at present, and why; with none when
            all of them have started.
        command: runs the helper.
    """

    def __init__(
        self,
        workers: RayWorkers,
        *,
        dialing: Callable[[Connected], Dialing],
        packer: Packer | None = None,
        on_waiting: Callable[[Sequence[int], str], object] = lambda indexes, reason: None,
        command: Sequence[str] = HELPER,
    ) -> None:
        self.running: dict[int, WorkerProcess] = {}
        self._workers = workers
        self._dialing = dialing
        self._packer = packer
        self._on_waiting = on_waiting
        self._command = command
        self._gateway = token_hex(4)
        self._launches = itertools.count(1)
        self._planned: dict[int, _Planned] = {}
        self._killed: set[int] = set()
        """Launches whose end a helper has not confirmed."""
        self._packing = asyncio.Lock()
        self._helper: HelperProcess | None = None
        self._connected: asyncio.Future[Connected] = asyncio.get_running_loop().create_future()
        """The first connection; later ones do not change how workers reach the gateway."""
        self._reaches: Dialing | None = None
        self._waiting_reason = ""
        self._runs: asyncio.Task[None] | None = None

    async def start(self) -> Connected:
        """Connect to the cluster, and stay connected until :meth:`close`.

        Raises:
            RayUnusable: if that is impossible.
            OSError: if the service's folder cannot be packed.
        """
        await self._pack()
        self._runs = asyncio.create_task(self._keep_helper())
        self._runs.add_done_callback(self._on_failure)
        try:
            connected = await self._first_connection()
            self._reaches = self._dialing(connected)
        except BaseException:
            await self.close()
            raise
        return connected

    async def _first_connection(self) -> Connected:
        try:
            async with asyncio.timeout(_CONNECT_S):
                return await asyncio.shield(self._connected)
        except TimeoutError:
            message = (
                f"{self._workers.address} has not answered within {_CONNECT_S:g} s; is it a Ray cluster?"
            )
            raise RayUnusable(message) from None

    async def launch(self, index: int, *, standby: bool = False) -> WorkerProcess:
        code = await self._pack()
        launch = next(self._launches)
        worker = WorkerProcess(index, launch, asyncio.get_running_loop().create_future())
        self.running[launch] = worker
        self._planned[launch] = _Planned(worker, standby, code)
        if self._is_connected:
            self._request(launch)
        else:
            self._report_waiting(self._waiting_reason)
        return worker

    def kill(self, launch: int) -> None:
        """Kill a worker process; do nothing if it has ended. Does not wait for Ray, which may take long."""
        planned = self._planned.get(launch)
        if planned is None:
            return
        if planned.is_sent:
            self._killed.add(launch)
            if self._is_connected:
                self._send(Kill(launch))
        self._end(launch, "was killed")

    async def close(self) -> None:
        """Kill all worker processes, and end the helper."""
        if self._runs is not None:
            self._runs.cancel()
            await asyncio.gather(self._runs, return_exceptions=True)
        for launch in list(self._planned):
            self._end(launch, "was killed")

    # The helper

    async def _keep_helper(self) -> None:
        """Run a helper, and another one whenever it ends."""
        failures = 0
        while True:
            was_connected, reason = await self._run_helper()
            if not self._connected.done():
                self._connected.set_exception(RayUnusable(reason))
                return
            failures = 1 if was_connected else failures + 1
            if reason != self._waiting_reason:
                log.warning("%s; trying again", reason)
            self._report_waiting(reason)
            await asyncio.sleep(backoff_s(failures, first_s=0.5, longest_s=15.0))

    def _on_failure(self, runs: asyncio.Task[None]) -> None:
        """Do not let :meth:`start` wait for a task that has failed."""
        error = None if runs.cancelled() else runs.exception()
        if error is not None and not self._connected.done():
            self._connected.set_exception(RayUnusable(f"the helper process for Ray failed: {error!r}"))

    async def _run_helper(self) -> tuple[bool, str]:
        """Run a helper until it ends; return whether it was connected, and why it ended."""
        try:
            helper = self._helper = await HelperProcess.start(self._command)
        except OSError as error:
            return False, f"the helper process for Ray cannot be started: {error}"
        try:
            helper.send(Connect(self._workers.address, self._gateway))
            async for event in helper.events():
                self._received(event)
        finally:
            self._helper = None
            reason = await helper.end()
        return helper.is_connected, reason

    @property
    def _is_connected(self) -> bool:
        return self._helper is not None and self._helper.is_connected

    def _send(self, command: Command) -> None:
        if self._helper is not None:
            self._helper.send(command)

    def _received(self, event: Event) -> None:
        match event:
            case Connected():
                self._resume(event)
            case Started(launch=launch) if launch in self._planned:
                self._planned[launch].is_started = True
            case Ended(launch=launch, code=code, reason=reason):
                self._killed.discard(launch)
                self._end(launch, reason if code is None else self._describe_exit(code))
            case Waiting(launches=launches, reason=reason):
                self._wait(launches, reason)

    # Launches

    async def _pack(self) -> Code | None:
        if self._packer is None:
            return None
        async with self._packing:
            return await asyncio.to_thread(self._packer.pack)

    def _resume(self, connected: Connected) -> None:
        """Have a new helper watch what runs, start what does not, and kill what should not run."""
        if not self._connected.done():
            self._connected.set_result(connected)
        elif self._waiting_reason:
            log.info("connected to Ray again")
        self._report_waiting("")
        for launch in self._killed:
            self._send(Kill(launch))
        for launch, planned in self._planned.items():
            if planned.is_sent:
                self._send(Attach(launch, self._workers.needs))
            else:
                self._request(launch)

    def _request(self, launch: int) -> None:
        """Ask the helper to start a worker."""
        planned, dialing = self._planned[launch], self._reaches
        assert dialing is not None
        planned.is_sent = True
        arguments = [
            self._workers.target,
            *(dialing.standby_arguments if planned.standby else dialing.arguments),
            *("--index", str(planned.worker.index), "--launch", str(launch)),
            *self._workers.arguments,
        ]
        environment = {**self._workers.environment, **dialing.environment}
        self._send(Launch(launch, arguments, environment, self._workers.needs, planned.code))

    def _end(self, launch: int, how: str) -> None:
        planned = self._planned.pop(launch, None)
        if planned is not None:
            del self.running[launch]
            planned.worker.ended.set_result(how)

    def _wait(self, launches: Sequence[int], reason: str) -> None:
        if reason and reason != self._waiting_reason:
            log.warning("%s waiting for Ray: %s", _workers_are(len(launches)), reason)
        self._waiting_reason = reason
        waiting = [self._planned[launch] for launch in launches if launch in self._planned]
        self._on_waiting(sorted({one.worker.index for one in waiting}), reason)

    def _report_waiting(self, reason: str) -> None:
        """Report all workers that have not started as waiting, for a reason; none if it is empty."""
        self._waiting_reason = reason
        waiting = [one.worker.index for one in self._planned.values() if reason and not one.is_started]
        self._on_waiting(sorted(set(waiting)), reason)

    def _describe_exit(self, code: int) -> str:
        how = describe_exit(code)
        if code != EXIT_UNREACHABLE or self._reaches is None:
            return how
        address = self._reaches.arguments[-1]
        return (
            f"{how}: it cannot reach the gateway at {address}; give an address that the nodes can reach with "
            "--worker-address"
        )


def _workers_are(count: int) -> str:
    return f"{plural(count, 'worker')} {'is' if count == 1 else 'are'}"
