"""The resident memory of processes."""

import psutil


def resident_bytes(pid: int) -> int:
    """Return the resident memory of a process; 0 if it has ended."""
    try:
        return int(psutil.Process(pid).memory_info().rss)
    except psutil.Error:
        return 0


def mebibytes(size_bytes: float) -> str:
    """Format a size for people."""
    return f"{size_bytes / 2**20:.0f} MiB"
