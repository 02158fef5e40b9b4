"""A virtual environment for each peer, made by pip when it is first needed.

One that is already there keeps its interpreter: a peer that needs another Python can be given one by hand.
"""

import importlib.metadata
import subprocess
import venv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from uncork_loadtests.servers import BenchError

_INSTALL_SECONDS = 900.0


@dataclass(frozen=True, kw_only=True)
class Environment:
    """A virtual environment with what was asked for."""

    folder: Path

    @property
    def python(self) -> Path:
        """The interpreter in it."""
        return self.folder / "bin" / "python"

    @property
    def _stamp(self) -> Path:
        return self.folder / ".installed"

    def holds(self, requirements: Sequence[str]) -> bool:
        """Whether all of `requirements` were installed here, as they are written."""
        known = self._stamp.read_text().splitlines() if self._stamp.exists() else []
        return self.python.exists() and set(requirements) <= set(known)

    def make(self, requirements: Sequence[str]) -> None:
        """Install `requirements` here; BenchError with the last lines of pip if that fails."""
        if not self.python.exists():
            venv.create(self.folder, with_pip=True, symlinks=True)
        self._stamp.unlink(missing_ok=True)
        command = [str(self.python), "-m", "pip", "install", "--quiet", *requirements]
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=_INSTALL_SECONDS, check=False
            )
        except subprocess.TimeoutExpired as error:
            raise BenchError(f"pip took longer than {_INSTALL_SECONDS:g} s for {self.folder.name}") from error
        if done.returncode:
            last = "\n".join(done.stderr.splitlines()[-10:])
            raise BenchError(f"pip cannot install {' '.join(requirements)}:\n{last}")
        self._stamp.write_text("\n".join(requirements) + "\n")

    def versions(self, requirements: Sequence[str]) -> Mapping[str, str]:
        """Versions of the packages named in `requirements`, as they are installed here."""
        packages = self.folder.glob("lib/python3.*/site-packages")
        names = [requirement.partition("==")[0].partition("[")[0] for requirement in requirements]
        found = importlib.metadata.distributions(path=[str(path) for path in packages])
        return {each.name: each.version for each in found if each.name in names}


def environment(folder: Path, *, requirements: Sequence[str]) -> Environment:
    """Give the environment in `folder` with `requirements` in it, made or completed if need be."""
    found = Environment(folder=folder)
    if not found.holds(requirements):
        found.make(requirements)
    return found
