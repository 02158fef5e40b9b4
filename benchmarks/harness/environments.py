"""Virtual environments of other projects, made when first needed.

An existing environment keeps its interpreter, so one for another Python can be made by hand.

    python -m benchmarks.harness.environments .peers/kserve kserve==0.21.0
"""

import importlib.metadata
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from uncork_loadtests.servers import BenchError

_INSTALL_SECONDS = 900.0


@dataclass(frozen=True, kw_only=True)
class Environment:
    """A virtual environment."""

    folder: Path

    @property
    def python(self) -> Path:
        return self.folder / "bin" / "python"

    @property
    def _stamp(self) -> Path:
        return self.folder / ".installed"

    def holds(self, requirements: Sequence[str]) -> bool:
        """Whether all these requirements were installed here, as written."""
        known = self._stamp.read_text().splitlines() if self._stamp.exists() else []
        return self.python.exists() and set(requirements) <= set(known)

    def make(self, requirements: Sequence[str], *, interpreter: str) -> None:
        """Install requirements; raise BenchError with the last lines of pip if that fails."""
        if not self.python.exists():
            subprocess.run([interpreter, "-m", "venv", self.folder], check=True)
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
        """Return the installed versions of the packages named in `requirements`."""
        packages = self.folder.glob("lib/python3.*/site-packages")
        names = [requirement.partition("==")[0].partition("[")[0] for requirement in requirements]
        found = importlib.metadata.distributions(path=[str(path) for path in packages])
        return {each.name: each.version for each in found if each.name in names}


def environment(folder: Path, *, requirements: Sequence[str], python: str = sys.executable) -> Environment:
    """Return the environment in `folder`, created with that Python or completed if necessary."""
    found = Environment(folder=folder)
    if not found.holds(requirements):
        found.make(requirements, interpreter=python)
    return found


if __name__ == "__main__":
    environment(Path(sys.argv[1]), requirements=sys.argv[2:])
