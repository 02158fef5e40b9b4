"""How the C library handles large blocks of memory."""

from __future__ import annotations

import ctypes
import os

_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3
# The highest threshold that glibc takes, and how much is kept at most.
_MAPPED_BYTES = 32 * 2**20
_KEPT_BYTES = 128 * 2**20


def keep_freed_memory() -> None:
    """Keep up to 128 MiB that were freed instead of giving them back to the system at once.

    By default glibc maps each large block anew, and the system clears it page by page: with bodies of a
    megabyte that costs more than all that is done with them. Does nothing where the environment says
    something else (``MALLOC_…``), or where there is no glibc.
    """
    if any(name.startswith("MALLOC_") for name in os.environ):
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, _MAPPED_BYTES)
        mallopt(_M_TRIM_THRESHOLD, _KEPT_BYTES)
