"""A file by which an orchestrator sees that a worker is ready."""

from __future__ import annotations

import errno
import logging
import os
from pathlib import Path

log = logging.getLogger("uncork.worker")


class ReadyFile:
    """Exists while the worker has loaded its model and is connected to a gateway.

    Args:
        path: None for no file. A file left by an earlier process is removed.

    Raises:
        OSError: if the file cannot be written.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        if path is None:
            return
        self.remove()
        # It must not exist for even a moment, so its folder is checked instead of writing it.
        if not path.parent.is_dir():
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
        if not os.access(path.parent, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    def create(self) -> None:
        if self._path is None:
            return
        try:
            self._path.touch()
        except OSError as error:
            log.error("cannot write %s: %s", self._path, error.strerror)

    def remove(self) -> None:
        if self._path is not None:
            self._path.unlink(missing_ok=True)
