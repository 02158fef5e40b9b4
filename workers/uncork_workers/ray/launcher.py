"""Start and kill worker processes on a Ray cluster, through a helper process."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from secrets import token_hex

from uncork_workers.plural import plural
from uncork_workers.process.worker import EXIT_UNREACHABLE
from uncork_workers.ray.code_shipping import Packer
from uncork_workers.ray.connection import HELPER, Connection
from uncork_workers.ray.messages import (
    Attach,
    Code,
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
from uncork_workers.supervision.launcher import Dialing, Starter, WorkerProcess
from uncork_workers.supervision.processes import describe_exit

log = logging.getLogger("uncork.gateway")

# Ray may add a node meanwhile, which takes minutes in a cloud.
_ROOM_S = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RayWorkers:
    """The workers to start on a cluster.

    Attributes:
        address: of the cluster, as for ``ray.init``.
        target: the service, as the nodes find it.
        cpus, gpus: what Ray reserves for each worker.
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
    workers: RayWorkers
    standby: bool
    code: Code | None
    is_sent: bool = False
    """Whether a helper has been asked for it."""
    is_started: bool = False


class RayLauncher:
    """The worker processes of one service on a Ray cluster; a :class:`Launcher`.

    Args:
        dialing: returns how workers reach the gateway, given this machine's address in the cluster's network.
        packer: packs the folder of the service; None for an installed module.
        on_waiting: called with the indexes of workers that cannot start at present, and why; with none when
            all of them have started.
        room_s: seconds that Ray may take to place a replacement worker.
    """

    def __init__(
        self,
        workers: RayWorkers,
        *,
        dialing: Callable[[Connected], Dialing],
        packer: Packer | None = None,
        on_waiting: Callable[[Sequence[int], str], object] = lambda indexes, reason: None,
        room_s: float = _ROOM_S,
        command: Sequence[str] = HELPER,
    ) -> None:
        self.running: dict[int, WorkerProcess] = {}
        self._workers = workers
        self._dialing = dialing
        self._packer = packer
        self._on_waiting = on_waiting
        self._room_s = room_s
        self._launches = itertools.count(1)
        self._planned: dict[int, _Planned] = {}
        self._killed: set[int] = set()
        """Launches whose end a helper has not confirmed."""
        self._packing = asyncio.Lock()
        self._reaches: Dialing | None = None
        """How workers reach the gateway, which later connections do not change."""
        self._waiting_reason = ""
        self._connection = Connection(
            Connect(workers.address, token_hex(4)),
            command,
            on_event=self._received,
            on_lost=self._report_waiting,
        )

    async def start(self) -> Connected:
        """Connect to the cluster, and stay connected until :meth:`close`.

        Raises:
            RayUnusable: if that is impossible.
            OSError: if the service's folder cannot be packed.
        """
        await self._pack()
        try:
            connected = await self._connection.start()
            self._reaches = self._dialing(connected)
        except BaseException:
            await self.close()
            raise
        return connected

    def starter(self, workers: RayWorkers) -> Starter:
        """Return what starts other workers, of the same target on the same cluster."""
        return partial(self._launch, workers)

    async def launch(self, index: int, *, standby: bool = False) -> WorkerProcess:
        return await self._launch(self._workers, index, standby=standby)

    async def _launch(self, workers: RayWorkers, index: int, *, standby: bool = False) -> WorkerProcess:
        code = await self._pack()
        launch = next(self._launches)
        worker = WorkerProcess(index, launch, asyncio.get_running_loop().create_future())
        self.running[launch] = worker
        self._planned[launch] = _Planned(worker, workers, standby, code)
        if self._connection.is_up:
            self._request(launch)
        else:
            self._report_waiting(self._waiting_reason)
        if standby:
            asyncio.get_running_loop().call_later(self._room_s, self._give_up, launch)
        return worker

    def kill(self, launch: int, how: str = "was killed") -> None:
        """Kill a worker process; do nothing if it has ended. Does not wait for Ray, which may take long.

        ``how`` is the description of its end.
        """
        planned = self._planned.get(launch)
        if planned is None:
            return
        if planned.is_sent:
            self._killed.add(launch)
            if self._connection.is_up:
                self._connection.send(Kill(launch))
        self._end(launch, how)

    async def close(self) -> None:
        """Kill all worker processes, and end the helper."""
        await self._connection.close()
        for launch in list(self._planned):
            self._end(launch, "was killed")

    def _received(self, event: Event) -> None:
        match event:
            case Connected():
                self._resume()
            case Started(launch=launch) if launch in self._planned:
                self._planned[launch].is_started = True
            case Ended(launch=launch, code=code, reason=reason):
                self._killed.discard(launch)
                self._end(launch, reason if code is None else self._describe_exit(code))
            case Waiting(launches=launches, reason=reason):
                self._wait(launches, reason)

    async def _pack(self) -> Code | None:
        if self._packer is None:
            return None
        async with self._packing:
            return await asyncio.to_thread(self._packer.pack)

    def _resume(self) -> None:
        """Have a new helper watch what runs, start what does not, and kill what should not run."""
        self._report_waiting("")
        for launch in self._killed:
            self._connection.send(Kill(launch))
        for launch, planned in self._planned.items():
            if planned.is_sent:
                self._connection.send(Attach(launch, planned.workers.needs))
            else:
                self._request(launch)

    def _request(self, launch: int) -> None:
        """Ask the helper to start a worker."""
        planned, dialing = self._planned[launch], self._reaches
        workers = planned.workers
        assert dialing is not None
        planned.is_sent = True
        arguments = [
            workers.target,
            *(dialing.standby_arguments if planned.standby else dialing.arguments),
            *("--index", str(planned.worker.index), "--launch", str(launch)),
            *workers.arguments,
        ]
        environment = {**workers.environment, **dialing.environment_of(launch)}
        self._connection.send(Launch(launch, arguments, environment, workers.needs, planned.code))

    def _give_up(self, launch: int) -> None:
        """End a replacement that has no room: while it waits, no other reload or change of size begins."""
        planned = self._planned.get(launch)
        if planned is not None and not planned.is_started:
            reason = self._waiting_reason or "Ray has not started it"
            self.kill(launch, f"was not started within {self._room_s:g} s: {reason}")

    def _end(self, launch: int, how: str) -> None:
        planned = self._planned.pop(launch, None)
        if planned is not None:
            del self.running[launch]
            planned.worker.ended.set_result(how)

    def _wait(self, launches: Sequence[int], reason: str) -> None:
        # While the helper asked for the reason, Ray may have placed them, or they were killed.
        waiting = [self._planned[launch] for launch in launches if launch in self._planned]
        reason = reason if waiting else ""
        if reason and reason != self._waiting_reason:
            log.warning("%s waiting for Ray: %s", _workers_are(len(waiting)), reason)
        self._waiting_reason = reason
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
