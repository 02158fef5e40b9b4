"""End the worker process when its gateway ends."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
import time

_PR_SET_PDEATHSIG = 1
_POLL_S = 0.5


def die_with(parent: int) -> None:
    """End this process at once when its parent ends, even inside a handler.

    A gateway that stops in order closes the sockets of its workers; this is for a gateway that is killed.
    On Linux the kernel sends the signal when the thread that started the worker ends, which is the thread of
    the gateway's event loop. Elsewhere a thread polls, which cannot run while a handler holds the GIL.

    Args:
        parent: the process id of the parent when it started this process.
    """
    if sys.platform == "linux":
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
            raise OSError(ctypes.get_errno(), "prctl: " + os.strerror(ctypes.get_errno()))
    else:
        threading.Thread(target=_watch, args=(parent,), name="uncork parent", daemon=True).start()
    if os.getppid() != parent:  # it ended before the watch began
        os._exit(0)


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(_POLL_S)
    os._exit(0)
