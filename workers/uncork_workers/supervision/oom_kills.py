"""The kernel's count of the processes that it has killed for lack of memory."""

from pathlib import Path

_CGROUPS = Path("/sys/fs/cgroup")


class OomKills:
    """Counts the kills in the cgroup of this process, which the processes that it starts share.

    The count includes cgroups within (version 2 only) and processes that others have started there. Without a
    cgroup, or if it cannot be read, no kill is known of.

    Args:
        file: has a line with ``oom_kill`` and the count; None if there is none.
    """

    def __init__(self, file: Path | None) -> None:
        self._file = file
        self._count = self._read()

    @classmethod
    def here(cls) -> "OomKills":
        """Return the counter of this process's cgroup."""
        try:
            return cls(counter_file(Path("/proc/self/cgroup").read_text(), _CGROUPS))
        except OSError:
            return cls(None)

    def is_one_more(self) -> bool:
        """Return True if the kernel has killed exactly one process since the last call, or since the start.

        After the death of a worker by SIGKILL, this is evidence that the kernel has killed that worker. If
        more have been killed, any of them may have been the worker whose batch took the memory.
        """
        before, self._count = self._count, self._read()
        return before is not None and self._count == before + 1

    def _read(self) -> int | None:
        try:
            return None if self._file is None else kills_in(self._file.read_text())
        except (OSError, ValueError):
            return None


def counter_file(cgroups: str, root: Path) -> Path | None:
    """Return the file with the kills of a process's memory cgroup.

    Args:
        cgroups: the content of the process's ``/proc/PID/cgroup``.
        root: where cgroups are mounted.
    """
    found = None
    for line in cgroups.splitlines():
        _, controllers, path = line.split(":", 2)
        if "memory" in controllers.split(","):
            found = root / "memory", path, "memory.oom_control"  # version 1, which has precedence
            break
        if not controllers:
            found = root, path, "memory.events"
    if found is None:
        return None
    mount, path, name = found
    own = mount / path.lstrip("/") / name
    # Version 1 in a container: the path is that of the host, but only the container's part is mounted.
    return own if own.exists() else mount / name


def kills_in(text: str) -> int | None:
    """Return the number of kills in the content of ``memory.events`` or ``memory.oom_control``."""
    counts = dict(line.split(" ", 1) for line in text.splitlines() if " " in line)
    return int(counts["oom_kill"]) if "oom_kill" in counts else None
