"""Pack the folder of a service for other machines; :mod:`.code_copies` unpacks it there."""

import hashlib
import os
import zipfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from uncork_workers.ray.messages import Code

MOST_BYTES = 100 * 10**6
_LARGEST_NAMED = 3
_EXCLUDED = {".git", ".hg", ".svn", "__pycache__", ".venv", "venv", "node_modules", ".ipynb_checkpoints"}
# Files that mark a folder as a cache, and as a virtual environment.
_MARKERS = ("CACHEDIR.TAG", "pyvenv.cfg")


class Packer:
    """Packs a folder as often as its content changes.

    Version control, caches, virtual environments, links to folders and special files are left out.

    Args:
        folder: what to pack.
        into: a folder for the archives.
        most_bytes: the largest total size of the files.
    """

    def __init__(self, folder: Path, into: Path, *, most_bytes: int = MOST_BYTES) -> None:
        self._folder = folder
        self._into = into
        self._most_bytes = most_bytes
        self._packed: tuple[list[tuple[str, int, int]], Code] | None = None

    def pack(self) -> Code:
        """Return the folder as an archive.

        Raises:
            OSError: if a file cannot be read, or the files are too large.
        """
        files = sorted(_files(self._folder))
        status = [(file, file.stat()) for file in files]
        self._check_size({file: one.st_size for file, one in status})
        stamps = [(str(file), one.st_mtime_ns, one.st_size) for file, one in status]
        if self._packed is not None and self._packed[0] == stamps:
            return self._packed[1]
        code = self._write(files)
        self._packed = stamps, code
        return code

    def _write(self, files: list[Path]) -> Code:
        digest = hashlib.sha256()
        making = self._into / "making.zip"
        with zipfile.ZipFile(making, "w") as archive:
            for file in files:
                name, content = file.relative_to(self._folder).as_posix(), file.read_bytes()
                digest.update(b"%d %d " % (len(name.encode()), len(content)))
                digest.update(name.encode() + content)
                archive.writestr(name, content)
        code = Code(digest.hexdigest(), str(self._into / f"{digest.hexdigest()}.zip"))
        making.replace(code.archive)
        return code

    def _check_size(self, sizes: dict[Path, int]) -> None:
        total = sum(sizes.values())
        if total <= self._most_bytes:
            return
        entries: Counter[str] = Counter()
        for file, size in sizes.items():
            entries[file.relative_to(self._folder).parts[0]] += size
        largest = ", ".join(f"{name} ({_mb(size)})" for name, size in entries.most_common(_LARGEST_NAMED))
        raise OSError(
            f"{self._folder} contains {_mb(total)}, more than the {_mb(self._most_bytes)} that are copied to "
            f"Ray's nodes; largest: {largest}. Put large files into the image of the nodes or on a shared "
            "disk, and load them from there"
        )


def _files(folder: Path) -> Iterator[Path]:
    for path, folders, files in os.walk(folder):
        here = Path(path)
        if here != folder and any((here / marker).exists() for marker in _MARKERS):
            folders.clear()
            continue
        folders[:] = [name for name in folders if name not in _EXCLUDED]
        yield from (here / name for name in files if not name.endswith(".pyc") and (here / name).is_file())


def _mb(size_bytes: int) -> str:
    return f"{size_bytes / 10**6:.0f} MB" if size_bytes >= 10**6 else f"{size_bytes / 1000:.0f} kB"
