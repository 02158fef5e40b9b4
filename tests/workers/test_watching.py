"""Which files a service consists of, and what is seen of their changes; with real files."""

import asyncio
import os
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from pathlib import Path
from types import ModuleType

import pytest

from uncork_workers.loading import load_service
from uncork_workers.watching import Watch, service_files

SERVICE = """
from uncork_workers.adapters import Json
from uncork_workers.service import Service, api

class Echo(Service):
    @api(input=Json())
    def echo(self, items):
        return items
"""
# Nothing takes this long; a test that goes wrong should end all the same.
PATIENCE_S = 10


def write(project: Path, target: str, *modules: str, imports: str) -> None:
    """Write empty modules, and a service that imports some of them."""
    for name in (*modules, target):
        file = project / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("")
    file.write_text(f"import {imports}{SERVICE}")


def files_of(project: Path, target: str) -> list[str]:
    """The files of a service, seen from its project."""
    load_service(target)
    return [str(Path(file).relative_to(project)) for file in service_files(target)]


def test_a_file_comes_with_what_it_imports_from_beside_and_below(project: Path) -> None:
    """Not with what it does not import, nor with what lies elsewhere."""
    modules = ("app/near.py", "app/sub/deep.py", "app/unused.py", "elsewhere/outside.py")
    write(project, "app/echo.py", *modules, imports="near, sub.deep, outside")
    sys.path.append(str(project / "elsewhere"))

    assert files_of(project, "app/echo.py:Echo") == ["app/echo.py", "app/near.py", "app/sub/deep.py"]


@pytest.mark.parametrize("name", ["service", "my.service", "app"])
def test_the_name_of_the_file_does_not_matter(project: Path, name: str) -> None:
    """Nor does that of its folder."""
    write(project, f"app/{name}.py", "app/near.py", "beside.py", imports="near, beside")
    sys.path.append(str(project))

    assert files_of(project, f"app/{name}.py:Echo") == sorted(["app/near.py", f"app/{name}.py"])


@pytest.mark.parametrize(
    ("target", "own"), [("pkg.sub.mod:Echo", "pkg/sub/mod.py"), ("pkg:Echo", "pkg/__init__.py")]
)
def test_a_module_comes_with_what_it_imports_from_its_project(project: Path, target: str, own: str) -> None:
    """That is the folder in which its package lies."""
    modules = ("pkg/__init__.py", "pkg/sub/__init__.py", "pkg/other.py", "lib/util.py")
    write(project, own, *modules, imports="pkg.other, lib.util")

    assert {"pkg/__init__.py", "pkg/other.py", "lib/util.py", own} <= set(files_of(project, target))


def test_what_is_installed_does_not_count(project: Path) -> None:
    """Even if it is installed below the project; but an installed service has its own package's files."""
    site = project / "env/lib/site-packages"
    write(project, "echo.py", imports="lib.code")
    write(site, "served/svc.py", "lib/code.py", "served/own.py", imports="lib.code, served.own")
    sys.path.append(str(site))

    assert files_of(project, "echo.py:Echo") == ["echo.py"]
    assert files_of(site, "served.svc:Echo") == ["served/own.py", "served/svc.py"]


def test_what_has_no_file_has_none(project: Path) -> None:
    """A module that was put together at run time."""
    sys.modules["made_up"] = ModuleType("made_up")
    try:
        assert service_files("made_up:Echo") == []
    finally:
        del sys.modules["made_up"]


def test_a_change_is_seen_once(tmp_path: Path) -> None:
    """Whether a file was written or another one put in its place; not if it was only read."""
    one, two = (str(tmp_path / name) for name in ("one.py", "two.py"))
    for file in (one, two):
        Path(file).write_text("old")
    watch = Watch({one, two})
    Path(one).read_text()
    assert watch.look() == []

    Path(two).write_text("changed")
    assert (watch.look(), watch.look()) == ([two], [])

    (tmp_path / "new").write_text("old")
    os.utime(tmp_path / "new", ns=(0, Path(one).stat().st_mtime_ns))
    (tmp_path / "new").replace(one)
    os.utime(two)
    assert (watch.look(), watch.look()) == ([one, two], [])


def test_a_file_that_is_gone_counts_when_it_is_back(tmp_path: Path) -> None:
    """Some editors take the old one away first; and a service without one of its files would not load."""
    file = tmp_path / "one.py"
    file.write_text("old")
    watch = Watch({str(file)})
    file.unlink()
    assert watch.look() == []

    file.write_text("changed")
    assert watch.look() == [str(file)]


def test_files_may_be_added(tmp_path: Path) -> None:
    """They count from when they are first seen."""
    file = tmp_path / "one.py"
    file.write_text("old")
    files: set[str] = set()
    watch = Watch(files)
    files.add(str(file))
    assert watch.look() == []

    file.write_text("changed")
    assert watch.look() == [str(file)]


def test_all_python_files_beside_the_services_may_be_taken_for_its_own(tmp_path: Path) -> None:
    """Changed ones and new ones, until something has changed."""
    own, other, new, text = (tmp_path / name for name in ("own.py", "other.py", "new.py", "new.txt"))
    own.write_text("")
    other.write_text("")
    watch = Watch({str(own)})
    other.write_text("changed")
    assert watch.look() == []
    watch.take_all()
    text.write_text("new")
    assert watch.look() == []

    new.write_text("new")
    other.write_text("changed again")
    assert watch.look() == [str(new), str(other)]
    new.write_text("changed")
    assert watch.look() == []

    new.write_text("changed before it was asked for")
    watch.take_all()
    own.write_text("changed")
    assert watch.look() == [str(new), str(own)]


async def next_change(changes: AsyncGenerator[list[str]], make: Callable[[], object]) -> list[str]:
    """What is told of something that happens while it is waited for."""
    waiting = asyncio.create_task(anext(changes))
    while not waiting.done():
        make()
        await asyncio.wait({waiting}, timeout=0.2)
    return waiting.result()


def test_changes_are_told_as_they_come(tmp_path: Path) -> None:
    """Also those in folders that are new, and those that happened while nobody waited."""
    one, two = tmp_path / "one.py", tmp_path / "sub" / "two.py"
    one.write_text("")
    files = {str(one)}

    async def scenario() -> None:
        watch = Watch(files)
        async with asyncio.timeout(PATIENCE_S), aclosing(watch.changes()) as changes:
            assert await next_change(changes, one.touch) == [str(one)]
            two.parent.mkdir()
            two.write_text("")
            files.add(str(two))
            watch.look()
            two.write_text("changed while nobody waited")
            # The first may be told of another touch from above.
            while await anext(changes) != [str(two)]:
                pass
            assert await next_change(changes, two.touch) == [str(two)]

    asyncio.run(scenario())
