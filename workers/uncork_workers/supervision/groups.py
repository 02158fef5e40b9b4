"""End the processes that a worker has started and that outlive it."""

import os
import signal
import time
from contextlib import suppress

# A resource tracker of multiprocessing removes shared memory when the last process that uses it has ended.
_GRACE_S = 1.0
_LOOK_EVERY_S = 0.02


def end_group(group: int) -> None:
    """End all processes of a group whose leader has ended: by SIGTERM, and after 1 s by SIGKILL."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with suppress(OSError):  # the last one has ended, or belongs to another user
            os.killpg(group, number)
        gives_up_at = time.monotonic() + _GRACE_S
        while _is_left(group):
            if time.monotonic() > gives_up_at:
                break
            time.sleep(_LOOK_EVERY_S)
        else:
            return


def _is_left(group: int) -> bool:
    try:
        # Processes without a parent become children of process 1, which may be this one.
        while os.waitpid(-group, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass
    try:
        os.killpg(group, 0)
    except OSError:
        return False
    return True
