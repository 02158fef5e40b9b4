"""A service and its gateway in this process, with a thread in place of the worker process."""

import asyncio
import contextlib
import itertools
import logging
import os
import re
import socket
import threading
from collections.abc import Callable, Mapping
from queue import SimpleQueue
from types import TracebackType
from typing import Any

import uvicorn
from msgspec.structs import replace

from uncork_gateway import Gateway, GatewaySettings
from uncork_gateway.connection.protocol import HttpProtocol
from uncork_gateway.services.worker_events import ServiceUnusable, SupervisorActions
from uncork_workers.definition.hints import adding_hints
from uncork_workers.definition.service import Service, describe_service
from uncork_workers.process.batches.execution import Executor
from uncork_workers.process.concurrent_batches import ConcurrentBatches
from uncork_workers.process.context import context
from uncork_workers.process.gateway_connection import GatewayConnection
from uncork_workers.wire.messages import Hello, Ready
from uncork_workers.wire.overrides import for_all_apis
from uncork_workers.wire.values import DefinitionError

log = logging.getLogger("uncork.worker")

_LOGS_WITH_IDS = ("uncork.worker", "uncork.gateway")
_ID_IN_LOG = re.compile(r"\[([0-9a-f]{12})\]")
_ID_IN_ANSWER = re.compile(r"error id ([0-9a-f]{12})")
_WORKER_DIED = 502
_Raised = tuple[BaseException, TracebackType | None]


class InProcess:
    """One service behind its gateway; bound to the event loop that starts it."""

    def __init__(self, service: type[Service], overrides: Mapping[str, Any]) -> None:
        self._hello = Hello(index=0, pid=os.getpid(), service=describe_service(service))
        # Its only worker is for all APIs.
        settings = GatewaySettings(overrides=for_all_apis({**overrides, "workers": None}))
        self._gateway = Gateway(settings)
        self._served = self._gateway.add(
            settings,
            SupervisorActions(kill=lambda launch: self._replace_worker(), restarts=lambda: self._restarts),
        )
        self._worker = _WorkerThread(service, self._hello, died=self._worker_died)
        # Exceptions that the service has logged, by error id and by batch.
        self._by_id: dict[str, _Raised] = {}
        self._by_batch: dict[str, _Raised] = {}
        self._death: BaseException | None = None
        self._restarts = 0
        self._worker_end: socket.socket | None = None
        self._attaching: set[asyncio.Task[None]] = set()
        self._http = uvicorn.Config(
            self._gateway.front_end.app,
            ws="none",
            lifespan="off",
            access_log=False,
            log_config=None,
            proxy_headers=False,
        )
        self._http.load()
        self._state = uvicorn.Server(self._http).server_state

    async def start(self) -> None:
        """Return when the service is ready; after a failure, nothing is left running.

        Raises:
            DefinitionError: if the service is defined wrongly, or an override is wrong.
            Exception: the exception of ``setup``.
        """
        for name in _LOGS_WITH_IDS:
            # A filter sees every record of its logger without changing the handlers.
            logging.getLogger(name).addFilter(self._keep_exception)
        try:
            self._served.events.describe(self._hello.service)
            await self._served.events.described
            await self._worker.start()
            await self._attach()
            await self._gateway.front_end.ready.wait()
        except BaseException as error:
            await self.stop()
            if isinstance(error, ServiceUnusable):
                raise DefinitionError(str(error)) from None
            raise

    async def stop(self) -> None:
        """Answer the accepted requests, and end the thread.

        Raises:
            Exception: the exception of ``teardown``.
        """
        try:
            await self._gateway.front_end.drain()
            await asyncio.gather(*self._attaching)
            await self._gateway.close()
            await self._worker.stop()
        finally:
            for name in _LOGS_WITH_IDS:
                logging.getLogger(name).removeFilter(self._keep_exception)

    def connection(self) -> HttpProtocol:
        """Return the server's protocol of a new client connection."""
        return self._gateway.front_end.protocol(config=self._http, server_state=self._state, app_state={})

    def failure_behind(self, status: int, answer: str) -> Exception | None:
        """Return the exception of the service behind a response, with its original traceback, if any."""
        if status == _WORKER_DIED and self._death is not None:
            return _raisable(self._death)
        found = _ID_IN_ANSWER.search(answer)
        return None if found is None else _as_raised(self._by_id.get(found[1]))

    def failure_in_batch(self, batch_id: str) -> Exception | None:
        """Return the exception that the service raised while it streamed a response."""
        return _as_raised(self._by_batch.get(batch_id))

    def _keep_exception(self, record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if record.exc_info else None
        found = _ID_IN_LOG.search(record.getMessage()) if error is not None else None
        if found is not None and error is not None:
            self._by_id[found[1]] = error, error.__traceback__
            with contextlib.suppress(LookupError):  # not raised in a handler
                self._by_batch[context().batch_id] = error, error.__traceback__
        return True

    async def _attach(self) -> None:
        """Connect the thread to the gateway, in place of a worker process."""
        ours, self._worker_end = socket.socketpair()
        await self._served.pool.attach(ours)
        self._worker.serve(self._worker_end)

    def _replace_worker(self) -> None:
        """Disconnect the worker. A thread cannot be killed: it reconnects when its batch ends."""
        assert self._worker_end is not None
        with contextlib.suppress(OSError):  # closed by the thread
            self._worker_end.shutdown(socket.SHUT_RDWR)
        self._restarts += 1
        task = asyncio.create_task(self._attach())
        self._attaching.add(task)
        task.add_done_callback(self._attaching.discard)

    def _worker_died(self, error: BaseException) -> None:
        self._death = error
        self._replace_worker()


class _WorkerThread:
    """Acts as a worker process; serves one connection after the other.

    ``died`` is called in the event loop with an exception that would have ended the process.
    """

    def __init__(
        self, service: type[Service], hello: Hello, *, died: Callable[[BaseException], None]
    ) -> None:
        self._service_class = service
        self._hello = hello
        self._died = died
        self._launches = itertools.count(1)
        self._connections: SimpleQueue[socket.socket | None] = SimpleQueue()
        self._loop = asyncio.get_running_loop()
        self._set_up: asyncio.Future[None] = self._loop.create_future()
        self._ended: asyncio.Future[None] = self._loop.create_future()
        # A daemon, so that a handler that hangs does not keep the interpreter from exiting.
        self._thread = threading.Thread(target=self._run, name=f"uncork {service.__name__}", daemon=True)

    async def start(self) -> None:
        """Return when ``setup`` has returned; raise its exception."""
        self._thread.start()
        await self._set_up

    def serve(self, connection: socket.socket) -> None:
        """Run the batches of a connection until the other side closes it."""
        self._connections.put(connection)

    async def stop(self) -> None:
        """Return when all connections have ended and ``teardown`` has returned; raise its exception."""
        if self._thread.ident is None:
            return  # never started
        self._connections.put(None)
        try:
            await self._ended
        finally:
            self._thread.join()

    def _run(self) -> None:
        try:
            service = self._service_class()
            service.worker_index = self._hello.index
            with adding_hints(service):
                service.setup()
        except BaseException as error:
            self._settle(self._set_up, error)
            self._settle(self._ended)
            return
        self._settle(self._set_up)
        try:
            while (connection := self._connections.get()) is not None:
                with contextlib.closing(GatewayConnection(connection)) as gateway:
                    self._serve(service, gateway)
            with adding_hints(service):
                service.teardown()
        except BaseException as error:
            self._settle(self._ended, error)
        else:
            self._settle(self._ended)

    def _serve(self, service: Service, gateway: GatewayConnection) -> None:
        try:
            gateway.send(replace(self._hello, launch=next(self._launches)))
            gateway.send(Ready())
            with contextlib.closing(Executor(service, gateway)) as executor:
                if executor.concurrency:
                    ConcurrentBatches(gateway, executor, []).serve()
                for batch, bodies in gateway.batches():
                    gateway.reply(*executor.run(batch, bodies))
        except OSError:
            pass  # disconnected by the gateway
        except BaseException as error:
            log.error("under `uncork serve`, this exception would end the worker process", exc_info=error)
            self._loop.call_soon_threadsafe(self._died, error)

    def _settle(self, future: asyncio.Future[None], error: BaseException | None = None) -> None:
        def settle() -> None:
            if future.done():
                return  # its waiter was cancelled
            if error is None:
                future.set_result(None)
            else:
                future.set_exception(_raisable(error))

        self._loop.call_soon_threadsafe(settle)


def _as_raised(raised: _Raised | None) -> Exception | None:
    if raised is None:
        return None
    error, raised_at = raised
    return _raisable(error.with_traceback(raised_at))


def _raisable(error: BaseException) -> Exception:
    """Return the error, wrapped if futures cannot carry it."""
    if isinstance(error, Exception) and not isinstance(error, StopIteration | StopAsyncIteration):
        return error
    wrapped = RuntimeError(f"the service raised {type(error).__name__}: {error}")
    wrapped.__cause__ = error
    return wrapped
