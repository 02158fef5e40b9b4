"""The workers of a gateway: in service, standing by to take over, or retiring."""

import asyncio
import itertools
import socket
from collections.abc import Collection, Sequence
from functools import partial

from uncork_dispatcher import WorkerLost
from uncork_gateway.backends.pool_listener import PoolListener
from uncork_gateway.backends.slot import BackendSlot
from uncork_gateway.backends.worker_connection import (
    Done,
    OnPiece,
    WorkerConnection,
    WorkerState,
)
from uncork_gateway.backends.worker_identity import Identity
from uncork_workers.wire.handshake import Application
from uncork_workers.wire.messages import Batch, Hello
from uncork_workers.wire.schema import ServiceDescription


class WorkerPool:
    """Accepts connections of workers and runs batches on them; each runs one at a time.

    Make it inside a running event loop. An idle worker that hangs is dropped after one to two times
    ``ping_interval_s``. Indexes below ``reserved`` belong to workers of the supervisor.
    """

    def __init__(self, listener: PoolListener, *, ping_interval_s: float = 10.0, reserved: int = 0) -> None:
        self._reserved = reserved
        self._listener = listener
        self._ping_interval_s = ping_interval_s
        self._numbers = itertools.count(1)
        self._connections: dict[int, WorkerConnection] = {}
        """Workers in service: they accept batches, or will when they are ready."""
        self._standbys: dict[int, WorkerConnection] = {}
        self._retiring: set[WorkerConnection] = set()
        self._servers: list[asyncio.Server] = []
        self._code = ""
        """The digest of the code of the process of the supervisor that has joined last."""
        self._ping_later()

    async def listen(self, socket_path: str, *, standby: bool = False) -> None:
        """Accept workers on a Unix socket, which should be in a private folder.

        Workers on a ``standby`` socket get no batches until they take over.
        """
        loop = asyncio.get_running_loop()
        connection = partial(self._connection, standby=standby)
        self._servers.append(await loop.create_unix_server(connection, socket_path))

    async def attach(self, connected: socket.socket) -> None:
        """Adopt a socket that is already connected to a worker."""
        await asyncio.get_running_loop().connect_accepted_socket(self._connection, connected)

    def admit(self, transport: asyncio.Transport, application: Application) -> int:
        """Adopt the connection of a worker that has proved on TCP that it knows the token.

        A worker that the supervisor did not launch stands by until it joins, with the index that is returned.
        An older connection of the same process is closed: the process has given it up.
        """
        launch, instance = application.launch, application.instance
        taken = {connection.index for connection in self._all()}
        index = next(index for index in itertools.count(self._reserved) if index not in taken)
        identity = Identity(launch=launch, instance=instance, index=index if launch is None else None)
        for older in self._all():
            if older.identity is not None and older.identity.is_same_process(identity):
                older.abort()
        connection = self._connection(standby=launch is None or application.standby, identity=identity)
        transport.set_protocol(connection)
        connection.connection_made(transport)
        return index

    def reserve(self, indexes: int) -> None:
        """Leave these lowest indexes to the supervisor.

        Workers that it did not launch and that have one of them finish their batch; they dial again, and get
        another index.
        """
        self._reserved = indexes
        for worker in [*self._connections.values(), *self._standbys.values()]:
            offered = None if worker.identity is None else worker.identity.index
            if offered is not None and offered < indexes:
                self.retire(worker, "the gateway starts more workers, one with this index")

    def self_started(self) -> list[WorkerConnection]:
        """Return the described workers that the supervisor did not launch, without those that retire."""
        described = [*self._connections.values(), *self._standbys.values()]
        return [one for one in described if one.hello is not None and not one.is_launched]

    def in_service(self) -> list[WorkerConnection]:
        """Return the workers that accept batches, or will when they are ready."""
        return list(self._connections.values())

    def join(self, connection: WorkerConnection) -> None:
        """Let a standby that the supervisor did not launch accept batches, as soon as it is ready."""
        self._connections[connection.number] = self._standbys.pop(connection.number)
        connection.join()

    def retire(self, connection: WorkerConnection, reason: str = "") -> None:
        """Close the connection of a worker when its batches have ended; it gets no more.

        A worker that the supervisor did not launch gets the reason.
        """
        if connection in self._retiring:
            return
        self._standbys.pop(connection.number, None)
        if self._connections.pop(connection.number, None) is not None and connection.is_ready:
            self._listener.worker_leaves(connection.number)
        self._retiring.add(connection)
        connection.retire(reason)

    def retire_launch(self, launch: int) -> bool:
        """Retire the worker of a launch; return False if it is not in service."""
        for connection in self._connections.values():
            if connection.launch == launch:
                self.retire(connection)
                return True
        return False

    def drop_launch(self, launch: int) -> None:
        """Close the connection of a launch whose process has ended; another process may hold it open."""
        for connection in self._all():
            if connection.launch == launch:
                connection.abort()

    def abandon(self, batch: int) -> int | None:
        """Drop the worker that runs a batch; return its index, or None if no worker runs it."""
        connection = self._running(batch)
        if connection is None:
            return None
        connection.drop()
        return connection.index

    def execute(
        self,
        worker: int,
        batch: Batch,
        bodies: Sequence[bytes],
        done: Done,
        *,
        on_piece: OnPiece | None = None,
    ) -> None:
        """Run a batch on a worker; ``done`` is called once, after this has returned.

        If ``on_piece`` is given, it may receive pieces of the answer before that.

        Raises:
            FrameError: if the batch is larger than a frame may be.
        """
        connection = self._connections.get(worker)
        if connection is None:
            asyncio.get_running_loop().call_soon(done, WorkerLost(f"worker {worker} is gone"))
        else:
            connection.execute(batch, bodies, done, on_piece)

    def cancel(self, batch: int) -> None:
        """Cancel the streamed answer of a batch, if it still runs."""
        connection = self._running(batch)
        if connection is not None:
            connection.cancel()

    def _running(self, batch: int) -> WorkerConnection | None:
        return next((one for one in self._all() if one.runs(batch)), None)

    def standbys(self, launches: Collection[int]) -> list[ServiceDescription]:
        """Return the services of standby processes.

        Raises:
            ValueError: if one of them is gone or not ready.
        """
        ready = {one.hello.launch: one.hello for one in self._standbys.values() if one.hello and one.is_ready}
        gone = set(launches) - ready.keys()
        if gone:
            raise ValueError(f"{len(gone)} of the new workers cannot take over")
        return [ready[launch].service for launch in launches]

    def any_left_by(self, launches: Collection[int]) -> bool:
        """Return True if a launched worker would stay in service after these processes take over."""
        heirs = self._heirs(launches)
        return any(one.is_launched and one.index not in heirs for one in self._connections.values())

    def take_over(self, launches: Collection[int], *, renewed: bool = False) -> set[int]:
        """Replace workers by standby processes with the same indexes; return the replaced processes.

        If the service is ``renewed``, the processes may have other code than those before.

        A successor inherits the number of the worker that it replaces, which finishes its batches and
        retires. If no worker stays in service, those that have not identified themselves retire too: they may
        run older code.
        """
        heirs = self._heirs(launches)
        if renewed:
            self._code = ""
        for standby in heirs.values():
            if standby.hello is not None:
                self._check_code(standby.hello)
        going: set[int | None] = set(heirs) if self.any_left_by(launches) else {*heirs, None}
        leaving = set()
        for old in [one for one in self._connections.values() if one.index in going]:
            del self._connections[old.number]
            self._retiring.add(old)
            if old.is_ready and old.hello is not None:
                if old.hello.launch is not None:
                    leaving.add(old.hello.launch)
                heir = heirs.pop(old.hello.index, None)
                if heir is None:
                    self._listener.worker_leaves(old.number)
                else:
                    self._inherit(heir, old.number)
                    assert heir.hello is not None
                    if not self._takes_ahead(old.number) or heir.hello.host != old.hello.host:
                        self._report_heir(old.number)
            old.retire()
        for heir in heirs.values():
            self._inherit(heir, heir.number)
            assert heir.hello is not None
            self._listener.worker_ready(heir.number, heir.hello)
        return leaving

    def _check_code(self, hello: Hello) -> None:
        """Log that a process brings other code into service than the one before, without a reload."""
        if self._code and hello.code and hello.code != self._code:
            self._listener.log.error(
                "worker %d was started again with other code: files of the service have changed since the "
                "last reload. Workers may differ until `uncork reload`",
                hello.index,
            )
        self._code = hello.code or self._code

    def _heirs(self, launches: Collection[int]) -> dict[int, WorkerConnection]:
        """Return the connections of standby processes by index."""
        standbys = ((one, one.hello) for one in self._standbys.values())
        return {hello.index: one for one, hello in standbys if hello is not None and hello.launch in launches}

    def _inherit(self, heir: WorkerConnection, number: int) -> None:
        del self._standbys[heir.number]
        heir.number, heir.standby = number, False
        self._connections[number] = heir
        assert heir.ready is not None
        self._listener.worker_profiled(number, heir.ready)

    def index_of(self, worker: int) -> int:
        """Return the index of the worker with a number; -1 if it is gone."""
        connection = self._connections.get(worker)
        return -1 if connection is None or connection.index is None else connection.index

    def slots(self) -> list[BackendSlot]:
        """Return every worker that has identified itself."""
        return [
            BackendSlot(
                one.hello.index,
                one.state,
                number=one.number,
                pid=one.hello.pid,
                host=one.hello.host,
                fault=_standing_by(one.hello) if one.standby else "",
            )
            for one in self._all()
            if one.hello is not None
        ]

    def states(self) -> list[WorkerState]:
        return [connection.state for connection in self._all()]

    def ready(self) -> set[int]:
        """Return the indexes of the workers that accept batches."""
        ready = (one.index for one in self._connections.values() if one.is_ready)
        return {index for index in ready if index is not None}

    def ping_idle(self) -> None:
        """Ping the idle workers, and drop those that did not answer the last ping."""
        for connection in self._all():
            connection.ping_idle()

    def _ping_later(self) -> None:
        self._next_ping = asyncio.get_running_loop().call_later(self._ping_interval_s, self._on_ping_timer)

    def _on_ping_timer(self) -> None:
        self._ping_later()  # first: an exception below must not end the pings
        self.ping_idle()

    def _all(self) -> list[WorkerConnection]:
        return [*self._connections.values(), *self._retiring, *self._standbys.values()]

    async def close(self) -> None:
        """Close all connections. The workers that the supervisor launched exit, the others dial again."""
        self._next_ping.cancel()
        for server in self._servers:
            server.close()
        for connection in self._all():
            connection.close("the gateway is stopping")

    def _connection(self, *, standby: bool = False, identity: Identity | None = None) -> WorkerConnection:
        number = next(self._numbers)
        connection = WorkerConnection(
            number,
            self._listener,
            standby=standby,
            gone=self._gone,
            leaves=self._leaves,
            joins=self._check_code,
            identity=identity,
        )
        (self._standbys if standby else self._connections)[number] = connection
        return connection

    def _leaves(self, connection: WorkerConnection) -> None:
        self.retire(connection)
        if connection.hello is not None and not connection.is_launched:
            self._listener.joining_changed()

    def _gone(self, connection: WorkerConnection) -> None:
        number = connection.number
        if connection in self._retiring:
            self._retiring.remove(connection)
            # If it died or ran past its timeout, the dispatcher has given up its number.
            self._report_heir(number)
        elif connection.standby:
            del self._standbys[number]
        else:
            del self._connections[number]
            if connection.is_ready and connection.hello is not None:
                self._lost(number, connection.hello)
        if connection.hello is not None and not connection.is_launched:
            self._listener.worker_gone(connection.hello.index)
            self._listener.joining_changed()

    def _report_heir(self, number: int) -> None:
        """Report again that the worker that has inherited a number accepts batches, if there is one."""
        heir = self._connections.get(number)
        if heir is not None and heir.hello is not None:
            self._listener.worker_ready(number, heir.hello, takes_ahead=self._takes_ahead(number))

    def _takes_ahead(self, number: int) -> bool:
        """Whether batches with a number run one after another: no worker that had it before is still busy."""
        return not any(old.number == number and old.state == "busy" for old in self._retiring)

    def _lost(self, number: int, hello: Hello) -> None:
        """Report the loss of a number; nothing limits the batch of a retiring worker with it any more."""
        self._listener.worker_lost(number, hello)
        for old in self._retiring:
            if old.number == number:
                old.give_up()


def _standing_by(hello: Hello) -> str:
    if hello.launch is not None:
        return f"worker {hello.index} is preparing to take over"
    return f"worker {hello.index} stands by: it serves another version of the service than the other workers"
