"""Notice that files of a service have changed."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Collection
from contextlib import aclosing
from pathlib import Path

# Also where nothing is heard from the system, as on some network file systems.
_LOOK_AT_LEAST_EVERY_MS = 1000

Stamp = tuple[int, int, int]


class FileWatcher:
    """Tells when some of ``files`` change; more may be added to them at any time.

    A file has changed if its time of modification, its size or its inode has. One that is gone counts when it
    is back.
    """

    def __init__(self, files: Collection[str]) -> None:
        self._files = files
        self._seen: dict[str, Stamp] = {}
        self._takes_all = False
        self.look()

    def look(self) -> list[str]:
        """The files that have changed since the last look, or since they were first seen."""
        beside = self._beside()
        changed = []
        for file in sorted(beside.union(self._files)):
            stamp = _stamp(file)
            if stamp is None:
                continue
            before = self._seen.get(file)
            self._seen[file] = stamp
            if before == stamp:
                continue
            if self._takes_all or (before is not None and file in self._files):
                changed.append(file)
        if changed:
            self._takes_all = False
        return changed

    def include_new_files(self) -> None:
        """Until something has changed, take all Python files beside the others for files of the service.

        To be called when it cannot be loaded: perhaps a file is not there yet. What has happened since the
        last look counts.
        """
        self._takes_all = True

    async def changes(self) -> AsyncGenerator[list[str]]:
        """Wait for changes, and yield the files; what changes in the meantime is yielded afterwards.

        Raises:
            ImportError: if watchfiles is not installed.
        """
        from watchfiles import awatch

        logging.getLogger("watchfiles").setLevel(logging.WARNING)  # it tells of every file in these folders
        while True:
            folders = self._folders
            # Folders, because editors put new files in the place of old ones.
            news = awatch(
                *folders,
                watch_filter=None,
                recursive=False,
                rust_timeout=_LOOK_AT_LEAST_EVERY_MS,
                yield_on_timeout=True,
            )
            async with aclosing(news):
                async for _ in news:
                    changed = self.look()
                    if changed:
                        yield changed
                    if self._folders != folders:
                        break

    def _beside(self) -> set[str]:
        return {str(file) for folder in self._folders for file in folder.glob("*.py")}

    @property
    def _folders(self) -> list[Path]:
        return sorted({folder for file in self._files if (folder := Path(file).parent).is_dir()})


def _stamp(file: str) -> Stamp | None:
    try:
        status = Path(file).stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino
