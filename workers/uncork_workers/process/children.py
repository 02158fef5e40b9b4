"""Keep the state of a worker out of the processes that the author's code starts.

A worker handles SIGINT and SIGTERM, and owns the connection to the gateway. A process that the author's code
forks has neither: it gets Python's usual signal handlers, and its copy of the connection is closed.
"""

import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from types import FrameType
from typing import Any
from weakref import WeakSet

from uncork_workers.process.libc import die_with

Handler = Callable[[int, FrameType | None], Any]

_USUAL_HANDLERS: dict[signal.Signals, Handler | signal.Handlers] = {
    signal.SIGTERM: signal.SIG_DFL,
    signal.SIGINT: signal.default_int_handler,
}


class _Worker:
    """What forks of this process must not inherit; empty in a process that is no worker."""

    def __init__(self) -> None:
        self.handler: Handler | None = None
        self.connections: WeakSet[Any] = WeakSet()
        self.pid = 0


_worker = _Worker()
_fork = threading.local()
"""The fork that a thread is making: the signal mask before it, and whether the main thread forks."""


def handle_signals(handler: Handler, *, restart: bool) -> None:
    """Handle SIGINT and SIGTERM in this process, but in none that it starts.

    SIG_IGN would reach those too: a fork and even another program inherits it, and then cannot be terminated.
    With ``restart``, the signal does not interrupt system calls; not every library expects EINTR.
    """
    _worker.handler, _worker.pid = handler, os.getpid()
    for number in _USUAL_HANDLERS:
        signal.signal(number, handler)
        signal.siginterrupt(number, not restart)


def close_in_forks(connection: Any) -> None:
    """Call ``close()`` of a connection of this process in each process that it forks.

    Otherwise the connection would outlive the worker, and a fork could reply in its place.
    """
    _worker.connections.add(connection)


class WorkerCode:
    """Runs code of the author, which may fork; a fork that leaves the ``with`` block ends there.

    Without it, a fork that returns or raises would go on as if it were the worker.
    """

    __slots__ = ("_entered_in",)

    def __enter__(self) -> None:
        self._entered_in = _worker

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if self._entered_in is not _worker:  # a fork has its own
            _end(error)


def _end(error: BaseException | None) -> None:
    code = 0
    try:
        if isinstance(error, SystemExit) and isinstance(error.code, int | None):
            code = error.code or 0
        elif error is not None:
            code = 1
            traceback.print_exception(error)
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:
                stream.flush()
    finally:
        os._exit(code & 0xFF)


def _before_fork() -> None:
    # A signal to a fork that still has the worker's handlers would be lost.
    _fork.mask = signal.pthread_sigmask(signal.SIG_BLOCK, _USUAL_HANDLERS)
    _fork.is_by_main_thread = threading.current_thread() is threading.main_thread()


def _after_fork() -> None:
    signal.pthread_sigmask(signal.SIG_SETMASK, _fork.mask)


def _in_fork() -> None:
    global _worker
    worker, _worker = _worker, _Worker()
    for connection in worker.connections:
        connection.close()
    ours = [number for number in _USUAL_HANDLERS if signal.getsignal(number) == worker.handler]
    for number in ours:
        # A handler that raises would do so in here, without effect.
        signal.signal(number, signal.SIG_DFL)
    # The end of the thread that forked would count as the end of the worker.
    if worker.handler is not None and sys.platform == "linux" and _fork.is_by_main_thread:
        die_with(worker.pid, by=signal.SIGTERM)
    _after_fork()
    for number in ours:
        signal.signal(number, _USUAL_HANDLERS[number])


os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_in_fork)


class Stopped(SystemExit):
    """A signal ends the process, also while code of the service runs.

    Unlike other exceptions in that code, it is no failure of a request. asyncio lets a ``SystemExit`` leave
    the event loop from any of its tasks.
    """
