"""The workers of a gateway: in service, on standby, or retiring."""

import asyncio
import itertools
import socket
from collections.abc import Callable, Collection, Iterable, Sequence

from uncork_gateway.backends.slot import BackendSlot
from uncork_gateway.backends.worker_connection import (
    Done,
    FromWorker,
    OnPiece,
    PoolEvent,
    WorkerConnection,
    WorkerState,
)
from uncork_gateway.service_log import ServiceLog
from uncork_workers.wire.frames import FrameError
from uncork_workers.wire.handshake import Application, printable
from uncork_workers.wire.messages import Batch, Failed, Hello, Leaving, Ready, WarmUp
from uncork_workers.wire.schema import ServiceDescription

# A launched worker that has retired exits at once unless it hangs.
_LEAVING_S = 10.0


class WorkerPool:
    """Accepts connections of workers, and runs batches on them.

    Create it inside a running event loop. A worker's key is its launch, if the supervisor launched it, or
    else a negative number.

    Args:
        notify: receives a worker and its news; ``worker.key`` is the worker's key in the dispatcher.
        finished_batch: called with a launch when its process has finished a batch.
        ping_interval_s: the seconds between pings; the next one drops an idle worker that has not responded.
        reserved: the number of lowest indexes, which belong to the supervisor's workers.
    """

    def __init__(
        self,
        notify: Callable[[WorkerConnection, PoolEvent], object],
        *,
        log: ServiceLog,
        kill: Callable[[int], object] = lambda launch: None,
        finished_batch: Callable[[int], object] = lambda launch: None,
        ping_interval_s: float = 10.0,
        reserved: int = 0,
    ) -> None:
        self._reserved = reserved
        self._notify = notify
        self.log = log
        self._kill = kill
        self._finished_batch = finished_batch
        self._ping_interval_s = ping_interval_s
        self._keys = itertools.count(-1, -1)
        """The keys of workers that the supervisor did not launch."""
        self._workers: dict[WorkerConnection, None] = {}
        self._by_key: dict[int, WorkerConnection] = {}
        """The workers that have described themselves."""
        self._servers: list[asyncio.Server] = []
        self._code = ""
        """The digest of the code of the supervisor's process that has joined last."""
        self._ping_later()

    async def listen(self, socket_path: str, *, standby: bool = False) -> None:
        """Accept workers on a Unix socket in a private folder; those on ``standby`` wait to take over."""
        server = await asyncio.get_running_loop().create_unix_server(
            lambda: self._add(WorkerConnection(self, standby=standby)), socket_path
        )
        self._servers.append(server)

    async def attach(self, connected: socket.socket) -> None:
        """Use a socket that is already connected to a worker."""
        await asyncio.get_running_loop().connect_accepted_socket(
            lambda: self._add(WorkerConnection(self, standby=False)), connected
        )

    def admit(self, transport: asyncio.Transport, application: Application) -> int:
        """Take over the TCP connection of a worker that has proved its token; return the worker's index.

        A worker that the supervisor did not launch is on standby until it joins. An older connection of the
        same process counts as lost, because the process has abandoned it.
        """
        launch, process = application.launch, (application.launch, application.instance)
        taken = {worker.index for worker in self._workers}
        index = next(index for index in itertools.count(self._reserved) if index not in taken)
        for older in list(self._workers):
            known = older.application
            if known is not None and (known.launch, known.instance) == process:
                older.abort()
                self.gone(older)
        standby, offered = (True, index) if launch is None else (application.standby, None)
        connection = WorkerConnection(self, standby=standby, application=application, offered=offered)
        self._add(connection)
        transport.set_protocol(connection)
        connection.connection_made(transport)
        return index

    def reserve(self, indexes: int) -> None:
        """Reserve the lowest ``indexes`` indexes for the supervisor.

        Other workers with such an index finish their batch, reconnect, and get another index.
        """
        self._reserved = indexes
        for worker in list(self._workers):
            if worker.is_self_started and worker.index is not None and worker.index < indexes:
                self.retire(worker, "the gateway starts more workers, one with this index")

    def self_started(self) -> list[WorkerConnection]:
        """Return the described workers that the supervisor did not launch, except those that retire."""
        workers = [one for one in self._workers if one.hello is not None]
        return [one for one in workers if not (one.is_launched or one.is_retiring)]

    def held(self) -> list[WorkerConnection]:
        """Return the launched workers that wait until their description may be served, the newest first."""
        workers = [one for one in reversed(self._workers) if one.is_held and one.is_launched]
        return [one for one in workers if not one.is_retiring]

    def in_service(self) -> list[WorkerConnection]:
        """Return the workers that accept batches, or will once they are described and ready."""
        return [one for one in self._workers if not (one.standby or one.is_retiring)]

    def join(self, worker: WorkerConnection) -> None:
        """Let a described worker on standby accept batches as soon as it is ready."""
        if worker.is_launched:
            self._check_code(worker)
        worker.standby = worker.is_held = False
        self._notify(worker, "joined")
        if worker.ready is not None:
            self._notify(worker, "ready")

    def retire(self, worker: WorkerConnection, reason: str = "") -> None:
        """Send no more batches to a worker, and close its connection when its current batches end.

        A worker that the supervisor did not launch gets the reason.
        """
        if not worker.is_retiring:
            accepted = worker.accepts_batches
            worker.is_retiring, worker.retires_for = True, reason
            if accepted:
                self._notify(worker, "leaves")
            self._close_if_retired(worker)

    def retire_launch(self, launch: int) -> bool:
        """Retire the worker with a launch; return False if it is not in service, or held."""
        worker = self._by_key.get(launch)
        if worker is None or worker not in (*self.held(), *self.in_service()):
            return False
        self.retire(worker)
        return True

    def drop_launch(self, launch: int) -> None:
        """Close the connection of a launch whose process has ended; another process may hold it open."""
        worker = self._by_key.get(launch)
        if worker is not None:
            worker.abort()

    def abandon(self, batch: int) -> int | None:
        """Drop the worker that runs a batch; return the worker's index, or None if no worker runs it."""
        worker = next((one for one in self._workers if one.runs(batch)), None)
        if worker is None:
            return None
        self.drop(worker)
        return worker.index

    def execute(
        self,
        worker: int,
        batch: Batch,
        bodies: Sequence[bytes],
        done: Done,
        *,
        on_piece: OnPiece | None = None,
    ) -> None:
        """Run a batch on the worker with this key.

        ``done`` is called once, after this method has returned, unless the worker is lost first. Before it,
        ``on_piece``, if given, may receive pieces of the response.

        Raises:
            KeyError: if the worker is gone.
            FrameError: if the batch is too large for a frame.
        """
        self._by_key[worker].execute(batch, bodies, done, on_piece)

    def cancel(self, worker: int, batch: int, requests: Sequence[int]) -> None:
        """Tell a worker that the clients of these requests, by position, have left, if it has the batch."""
        connection = self._by_key.get(worker)
        if connection is not None:
            connection.cancel(batch, requests)

    def standbys(self, launches: Collection[int]) -> list[ServiceDescription]:
        """Return the services of standby processes.

        Raises:
            ValueError: if a process is gone or not ready.
        """
        ready = [one.hello for one in self._named(launches) if one.standby and one.ready is not None]
        services = [hello.service for hello in ready if hello is not None]
        if len(services) < len(launches):
            raise ValueError(f"{len(launches) - len(services)} of the new workers cannot take over")
        return services

    def any_left_by(self, launches: Collection[int]) -> bool:
        """Return True if any launched worker would stay in service after these processes take over."""
        places = {heir.index for heir in self._named(launches)}
        return any(one.is_launched and one.index not in places for one in self.in_service())

    def take_over(self, launches: Collection[int], *, renewed: bool = False) -> set[int]:
        """Replace workers with standby processes of the same indexes; return the replaced launches.

        The replaced workers finish their batches and retire. If the service is ``renewed``, the new processes
        may have different code; if no other worker stays in service then, workers that have not identified
        themselves retire too, because they may run older code.
        """
        heirs, places = self._named(launches), {heir.index for heir in self._named(launches)}
        if renewed and not self.any_left_by(launches):
            places.add(None)
        # First those that wait, which the end of the others would let in.
        replaced = [one for one in (*self.held(), *self.in_service()) if one.index in places]
        if renewed:
            self._code = ""
        for heir in heirs:
            self.join(heir)
        for old in replaced:
            self.retire(old)
        return {old.key for old in replaced if old.is_launched and old.ready is not None}

    def _named(self, launches: Iterable[int]) -> list[WorkerConnection]:
        """Return the workers of these launches that have described themselves, except those that leave."""
        known = [self._by_key[launch] for launch in launches if launch in self._by_key]
        return [one for one in known if not one.is_retiring]

    def _check_code(self, worker: WorkerConnection) -> None:
        """Log that a process brings different code into service than its predecessor, without a reload."""
        code = "" if worker.hello is None else worker.hello.code
        if self._code and code and code != self._code:
            self.log.error(
                "worker %d was started again with other code: files of the service have changed since the "
                "last reload. Workers may differ until `uncork reload`",
                worker.index,
            )
        self._code = code or self._code

    def index_of(self, worker: int) -> int:
        """Return the index of the worker with a key; -1 if the worker is gone."""
        connection = self._by_key.get(worker)
        return -1 if connection is None or connection.index is None else connection.index

    def slots(self) -> list[BackendSlot]:
        """Return the slots of all workers that have identified themselves."""
        return [one.slot(one.hello) for one in self._workers if one.hello is not None]

    def states(self) -> list[WorkerState]:
        return [one.state for one in self._workers]

    def ready(self) -> set[int]:
        """Return the indexes of the workers that accept batches."""
        return {one.index for one in self._workers if one.accepts_batches and one.index is not None}

    def ping_idle(self) -> None:
        """Ping the idle workers; drop those that have not responded to the previous ping."""
        for worker in list(self._workers):
            worker.ping_idle()

    def _ping_later(self) -> None:
        self._next_ping = asyncio.get_running_loop().call_later(self._ping_interval_s, self._on_ping_timer)

    def _on_ping_timer(self) -> None:
        self._ping_later()  # first: an exception below must not end the pings
        self.ping_idle()

    async def close(self) -> None:
        """Close all connections. Workers that the supervisor launched exit; others reconnect."""
        self._next_ping.cancel()
        for server in self._servers:
            server.close()
        for worker in list(self._workers):
            worker.close("the gateway is stopping")

    # What the connections report

    def _add(self, connection: WorkerConnection) -> WorkerConnection:
        self._workers[connection] = None
        return connection

    def received(self, worker: WorkerConnection, message: FromWorker) -> None:
        """Handle a message from a worker about itself; see :meth:`Owner.received`."""
        match message:
            case Hello():
                self._said_hello(worker, message)
            case WarmUp():
                if not worker.standby and worker.hello is not None:
                    self._notify(worker, message)
            case Ready():
                if worker.hello is None or worker.ready is not None:
                    raise FrameError("Ready arrived before Hello, or twice")
                worker.ready = message
                self._notify(worker, "ready")
            case Failed():
                # A launched worker that cannot load its service says so before it has an index here.
                if worker.index not in (None, message.index):
                    raise FrameError(f"a failure of worker {message.index}, which is another one")
                self._notify(worker, message)
            case Leaving():
                if (hello := worker.hello) is not None:
                    self.log.info("worker %d on %s is leaving", hello.index, printable(hello.host))
                self.retire(worker)

    def _said_hello(self, worker: WorkerConnection, hello: Hello) -> None:
        if worker.hello is not None:
            raise FrameError("Hello arrived twice")
        objection = worker.objection(hello)
        if not objection and hello.launch in self._by_key:
            objection = f"launch {hello.launch} of the gateway is connected already"
        if objection:
            self.log.error("dropping worker %s: %s", worker.index, objection)
            worker.close(f"the gateway refuses this worker: {objection}", is_final=True)
            return
        worker.hello, worker.index, worker.is_launched = hello, hello.index, hello.launch is not None
        worker.runs_in_order = all(api.concurrency == 1 for api in hello.service.apis)
        worker.key = next(self._keys) if hello.launch is None else hello.launch
        self._by_key[worker.key] = worker
        self._notify(worker, "described")

    def has_replied(self, worker: WorkerConnection) -> None:
        """Count a finished batch; close the connection if the worker retires and has no batch left."""
        if worker.is_launched:
            self._finished_batch(worker.key)
        if worker.is_retiring:
            self._close_if_retired(worker)

    def _close_if_retired(self, worker: WorkerConnection) -> None:
        if not worker.is_busy:
            worker.close(worker.retires_for)
            if worker.is_launched:
                asyncio.get_running_loop().call_later(_LEAVING_S, self._kill, worker.key)

    def drop(self, worker: WorkerConnection) -> None:
        """Close the connection of an unusable worker; the supervisor kills a process that it launched."""
        worker.abort()
        if worker.is_launched:
            self._kill(worker.key)

    def gone(self, worker: WorkerConnection) -> None:
        """Report the loss of a worker whose connection is closed, and of all its batches."""
        if worker in self._workers:
            del self._workers[worker]
            try:
                if worker.hello is not None:
                    self._notify(worker, "gone")
            finally:
                self._by_key.pop(worker.key, None)
