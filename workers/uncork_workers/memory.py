"""The memory of processes: how much they use, and how much is left for them."""

from pathlib import Path

import psutil

_CGROUPS = Path("/sys/fs/cgroup")


def resident_bytes(pid: int) -> int:
    """Return the resident memory of a process; 0 if it has ended, or cannot be asked."""
    try:
        return int(psutil.Process(pid).memory_info().rss)
    except (psutil.Error, OSError):  # the latter where no file can be opened
        return 0


def free_bytes() -> int:
    """Return the memory that this process may still take, with those that it starts."""
    free = int(psutil.virtual_memory().available)
    limit = own_cgroup_file("memory.limit_in_bytes", "memory.max")
    used = own_cgroup_file("memory.usage_in_bytes", "memory.current")
    if limit is None or used is None:
        return free
    in_cgroup = free_in_cgroup(limit, used, limit.with_name("memory.stat"))
    return free if in_cgroup is None else min(free, in_cgroup)


def free_in_cgroup(limit: Path, used: Path, counts: Path) -> int | None:
    """Return the memory that is left below the limit of a cgroup; None without one.

    Cached files that nobody has read for a while count as free.
    """
    try:
        cached = dict(line.split(" ", 1) for line in counts.read_text().splitlines())
        # Version 1 has another name for the sum over a cgroup and its children.
        droppable = int(cached.get("total_inactive_file") or cached["inactive_file"])
        return max(0, int(limit.read_text()) - int(used.read_text()) + droppable)
    except (OSError, ValueError, KeyError):  # the limit may be "max"
        return None


def own_cgroup_file(name_in_version_1: str, name: str) -> Path | None:
    """Return a file of this process's memory cgroup; None if there is no such cgroup."""
    try:
        return cgroup_file(Path("/proc/self/cgroup").read_text(), _CGROUPS, name_in_version_1, name)
    except OSError:
        return None


def cgroup_file(cgroups: str, root: Path, name_in_version_1: str, name: str) -> Path | None:
    """Return a file of a process's memory cgroup, which has another name in version 1.

    Args:
        cgroups: the content of the process's ``/proc/PID/cgroup``.
        root: where cgroups are mounted.
    """
    found = None
    for line in cgroups.splitlines():
        _, controllers, path = line.split(":", 2)
        if "memory" in controllers.split(","):
            found = root / "memory", path, name_in_version_1  # which has precedence
            break
        if not controllers:
            found = root, path, name
    if found is None:
        return None
    mount, path, name = found
    own = mount / path.lstrip("/") / name
    # In a container, version 1 gives the host's path, but only the container's part is mounted.
    return own if own.exists() else mount / name


def mebibytes(size_bytes: float) -> str:
    return f"{size_bytes / 2**20:.0f} MiB"
