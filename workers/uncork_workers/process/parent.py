"""A worker dies with its gateway, however that ends."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
import time

_PR_SET_PDEATHSIG = 1
_LOOK_EVERY_S = 0.5


def die_with(parent: int) -> None:
    """End this process at once when its parent ends, whatever it is doing then.

    A gateway that leaves in order closes the sockets of its workers and waits for them; this is for one that
    was killed while a worker is inside a handler and does not look at its socket. Linux does it when the
    thread ends that started the worker, which is the gateway's only one with an event loop. Elsewhere a
    thread looks for the parent, and has to wait for code that keeps the interpreter's lock.

    Args:
        parent: the number that the parent had when it started this process.
    """
    if sys.platform == "linux":
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
            raise OSError(ctypes.get_errno(), "prctl: " + os.strerror(ctypes.get_errno()))
    else:
        threading.Thread(target=_watch, args=(parent,), name="uncork parent", daemon=True).start()
    if os.getppid() != parent:  # it ended before it was watched
        os._exit(0)


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(_LOOK_EVERY_S)
    os._exit(0)
