import sys
from pathlib import Path
from types import ModuleType

import pytest

from uncork_workers.definition.loading import load_service, service_files

SERVICE = """
from uncork_workers.definition.adapters import Json
from uncork_workers.definition.service import (Service, api)

class Echo(Service):
    @api(input=Json())
    def echo(self, items):
        return items
"""


def write(project: Path, target: str, *modules: str, imports: str) -> None:
    for name in (*modules, target):
        file = project / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("")
    file.write_text(f"import {imports}{SERVICE}")


def files_of(project: Path, target: str) -> list[str]:
    load_service(target)
    return [str(Path(file).relative_to(project)) for file in service_files(target)]


def test_a_file_comes_with_what_it_imports_from_beside_and_below(project: Path) -> None:
    modules = ("app/near.py", "app/sub/deep.py", "app/unused.py", "elsewhere/outside.py")
    write(project, "app/echo.py", *modules, imports="near, sub.deep, outside")
    sys.path.append(str(project / "elsewhere"))

    assert files_of(project, "app/echo.py:Echo") == ["app/echo.py", "app/near.py", "app/sub/deep.py"]


@pytest.mark.parametrize("name", ["service", "my.service", "app"])
def test_the_name_of_the_file_does_not_matter(project: Path, name: str) -> None:
    write(project, f"app/{name}.py", "app/near.py", "beside.py", imports="near, beside")
    sys.path.append(str(project))

    assert files_of(project, f"app/{name}.py:Echo") == sorted(["app/near.py", f"app/{name}.py"])


@pytest.mark.parametrize(
    ("target", "own"), [("pkg.sub.mod:Echo", "pkg/sub/mod.py"), ("pkg:Echo", "pkg/__init__.py")]
)
def test_a_module_comes_with_what_it_imports_from_its_project(project: Path, target: str, own: str) -> None:
    modules = ("pkg/__init__.py", "pkg/sub/__init__.py", "pkg/other.py", "lib/util.py")
    write(project, own, *modules, imports="pkg.other, lib.util")

    assert {"pkg/__init__.py", "pkg/other.py", "lib/util.py", own} <= set(files_of(project, target))


def test_what_is_installed_does_not_count(project: Path) -> None:
    site = project / "env/lib/site-packages"
    write(project, "echo.py", imports="lib.code")
    write(site, "served/svc.py", "lib/code.py", "served/own.py", imports="lib.code, served.own")
    sys.path.append(str(site))

    assert files_of(project, "echo.py:Echo") == ["echo.py"]
    assert files_of(site, "served.svc:Echo") == ["served/own.py", "served/svc.py"]


def test_what_has_no_file_has_none(project: Path) -> None:
    sys.modules["made_up"] = ModuleType("made_up")
    try:
        assert service_files("made_up:Echo") == []
    finally:
        del sys.modules["made_up"]
