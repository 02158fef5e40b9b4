"""Compiles the path of a request with mypyc while a wheel is built, if HATCH_BUILD_HOOKS_ENABLE is set.

Such a wheel has both: extension modules, which Python prefers, and the sources, which tracebacks name.
hatch-mypyc does not fit: it knows one folder of sources, and writes into it.
"""

from __future__ import annotations

import contextlib
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class CompiledCore(BuildHookInterface):  # type: ignore[misc]
    """The hook. ``pyproject.toml`` names the modules, as the wheel has them."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile the modules and add the results to the wheel.

        Raises:
            ValueError: if the wheel is editable: changes of the sources would have no effect.
        """
        if version == "editable":
            raise ValueError("an editable installation is not compiled: unset HATCH_BUILD_HOOKS_ENABLE")
        self._built = tempfile.TemporaryDirectory()
        # The packages side by side, as in the wheel: tracebacks name files by their paths there.
        sources = Path(self._built.name, "sources")
        sources.mkdir()
        for package in map(Path, self.build_config.packages):
            Path(sources, package.name).symlink_to(Path(self.root, package))
        modules = [
            path.relative_to(sources) for each in self.config["modules"] for path in sources.glob(each)
        ]
        with contextlib.chdir(sources):
            _compile(sorted(set(modules)), Path(self._built.name))
        for extension in Path(self._built.name, "lib").rglob("*.so"):
            place = extension.relative_to(self._built.name).relative_to("lib")
            build_data["force_include"][str(extension)] = str(place)
        build_data["infer_tag"] = True
        build_data["pure_python"] = False

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove what the wheel now has."""
        self._built.cleanup()


def _compile(modules: list[Path], to: Path) -> None:
    """Compile modules, given relative to the current folder, into extension modules below ``to / "lib"``."""
    # Only builds that are enabled have these packages.
    from mypyc.build import mypycify
    from setuptools import Distribution

    # Without the configuration of the project, which is for checks. Extras that it imports may be missing.
    options = ["--config-file=", "--ignore-missing-imports", "--cache-dir", str(to / "cache")]
    extensions = mypycify(
        [*options, *map(str, modules)], opt_level="3", target_dir=str(to / "c"), group_name="uncork_core"
    )
    distribution = Distribution({"name": "uncork", "ext_modules": extensions})
    command = distribution.get_command_obj("build_ext")
    command.build_lib, command.build_temp = str(to / "lib"), str(to / "temp")
    command.ensure_finalized()
    command.run()
