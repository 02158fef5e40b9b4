"""Detect changes in the files of a service."""

import logging
from collections.abc import AsyncGenerator, Callable, Collection
from contextlib import aclosing
from pathlib import Path

# Some network file systems report no changes.
_POLL_MS = 1000

Stamp = tuple[int, int, int]


class FileWatcher:
    """Reports changes in the files that ``files`` returns, which may be others at any time.

    A file has changed if its modification time, size or inode has. A deleted file counts when it reappears.
    """

    def __init__(self, files: Callable[[], Collection[str]]) -> None:
        self._files = files
        self._seen: dict[str, Stamp] = {}
        self._includes_new = False
        self.changed_files()

    def changed_files(self) -> list[str]:
        """Return the files that have changed since the last call, or since they were added."""
        changed, files = [], self._files()
        python_files = {str(file) for folder in self._folders for file in folder.glob("*.py")}
        for file in sorted(python_files.union(files)):
            stamp = _stamp(file)
            if stamp is None:
                continue
            before = self._seen.get(file)
            self._seen[file] = stamp
            if before != stamp and (self._includes_new or (before is not None and file in files)):
                changed.append(file)
        if changed:
            self._includes_new = False
        return changed

    def include_new_files(self) -> None:
        """Until the next change, also report all other Python files in the same folders.

        Call this when the service cannot be loaded, as a file may still be missing.
        """
        self._includes_new = True

    async def changes(self) -> AsyncGenerator[list[str]]:
        """Yield the changed files whenever some change, including changes during the caller's work.

        Raises:
            ImportError: if watchfiles is not installed.
        """
        from watchfiles import awatch

        logging.getLogger("watchfiles").setLevel(logging.WARNING)  # it logs every file in these folders
        while True:
            folders = self._folders
            # Watch folders, because editors replace files by new ones.
            events = awatch(
                *folders, watch_filter=None, recursive=False, rust_timeout=_POLL_MS, yield_on_timeout=True
            )
            async with aclosing(events):
                async for _ in events:
                    changed = self.changed_files()
                    if changed:
                        yield changed
                    if self._folders != folders:
                        break

    @property
    def _folders(self) -> list[Path]:
        return sorted({folder for file in self._files() if (folder := Path(file).parent).is_dir()})


def _stamp(file: str) -> Stamp | None:
    try:
        status = Path(file).stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino
