"""How many cores there are for workers."""

from __future__ import annotations

import os


def usable_cores() -> int:
    """Return the number of cores that this process may run on; all of them where the system binds none."""
    if hasattr(os, "sched_getaffinity"):  # macOS has no such call
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
