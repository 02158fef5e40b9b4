"""Tuning of the C library's allocator."""

from __future__ import annotations

import ctypes
import os

_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3
# The highest threshold that glibc accepts, and the most freed memory to keep.
_MAPPED_BYTES = 32 * 2**20
_KEPT_BYTES = 128 * 2**20


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
