"""Limits and settings of a process that the operating system and the C library keep."""

import ctypes
import os
import resource
import signal
import sys
import threading
import time

_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3
# The highest threshold that glibc accepts, and the most freed memory to keep.
_MAPPED_BYTES = 32 * 2**20
_KEPT_BYTES = 128 * 2**20
_PR_SET_PDEATHSIG = 1
_POLL_S = 0.5


def keep_freed_memory() -> None:
    """Make glibc keep up to 128 MiB of freed memory instead of returning it to the system at once.

    By default glibc maps each large block anew and the kernel clears its pages; for bodies of a megabyte that
    costs more than all other work on them. Does nothing if the environment sets a ``MALLOC_`` variable, or
    without glibc.
    """
    if any(name.startswith("MALLOC_") for name in os.environ):
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, _MAPPED_BYTES)
        mallopt(_M_TRIM_THRESHOLD, _KEPT_BYTES)


def die_with(parent: int, *, by: signal.Signals = signal.SIGKILL) -> None:
    """End this process at once when the process that started it ends, even inside a handler.

    A gateway that stops in order closes the sockets of its workers; this is for a gateway that is killed.
    On Linux the kernel sends the signal ``by`` when the thread that started the worker ends, which is the
    thread of the gateway's event loop. Elsewhere a thread polls, which cannot run while a handler holds the
    GIL.
    """
    if sys.platform == "linux":
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.prctl(_PR_SET_PDEATHSIG, by, 0, 0, 0) != 0:
            raise OSError(ctypes.get_errno(), "prctl: " + os.strerror(ctypes.get_errno()))
    else:
        threading.Thread(target=_watch, args=(parent,), name="uncork parent", daemon=True).start()
    if os.getppid() != parent:  # it ended before the watch began
        os._exit(0)


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(_POLL_S)
    os._exit(0)


def limit_data(limit_bytes: int) -> None:
    """Let allocations of this process and its children fail that would exceed a size, as ``MemoryError``.

    Up to the limit that is set for the process anyway. Libraries in C++ may raise errors of their own.
    """
    _, most = resource.getrlimit(resource.RLIMIT_DATA)
    limit = limit_bytes if most == resource.RLIM_INFINITY else min(limit_bytes, most)
    resource.setrlimit(resource.RLIMIT_DATA, (limit, most))
