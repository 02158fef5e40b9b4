"""The kernel's count of the processes that it has killed for lack of memory."""

from pathlib import Path

from uncork_workers.memory import own_cgroup_file


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
        return cls(own_cgroup_file("memory.oom_control", "memory.events"))

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


def kills_in(text: str) -> int | None:
    """Return the number of kills in the content of ``memory.events`` or ``memory.oom_control``."""
    counts = dict(line.split(" ", 1) for line in text.splitlines() if " " in line)
    return int(counts["oom_kill"]) if "oom_kill" in counts else None
