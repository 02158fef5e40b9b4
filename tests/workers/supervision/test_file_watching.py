"""Detection of changes in real files."""

import asyncio
import os
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from pathlib import Path

from tests.loops import HANG_S
from uncork_workers.supervision.file_watching import FileWatcher


def test_a_change_is_seen_once(tmp_path: Path) -> None:
    one, two = (str(tmp_path / name) for name in ("one.py", "two.py"))
    for file in (one, two):
        Path(file).write_text("old")
    watch = FileWatcher(lambda: {one, two})
    Path(one).read_text()
    assert watch.changed_files() == []

    Path(two).write_text("changed")
    assert (watch.changed_files(), watch.changed_files()) == ([two], [])

    (tmp_path / "new").write_text("old")
    os.utime(tmp_path / "new", ns=(0, Path(one).stat().st_mtime_ns))
    (tmp_path / "new").replace(one)
    os.utime(two, ns=(0, 0))  # the time now may be that of the last change, in the clock of the file system
    assert (watch.changed_files(), watch.changed_files()) == ([one, two], [])


def test_files_may_go_and_come(tmp_path: Path) -> None:
    """One that is gone counts when it is back, and one that is added when it changes."""
    gone, added = tmp_path / "gone.py", tmp_path / "added.py"
    gone.write_text("old")
    added.write_text("old")
    files = {str(gone)}
    watch = FileWatcher(lambda: files)
    gone.unlink()
    files.add(str(added))
    assert watch.changed_files() == []

    gone.write_text("changed")
    added.write_text("changed")
    assert sorted(watch.changed_files()) == [str(added), str(gone)]


def test_all_python_files_beside_the_services_may_be_taken_for_its_own(tmp_path: Path) -> None:
    own, other, new, text = (tmp_path / name for name in ("own.py", "other.py", "new.py", "new.txt"))
    own.write_text("")
    other.write_text("")
    watch = FileWatcher(lambda: {str(own)})
    other.write_text("changed")
    assert watch.changed_files() == []
    watch.include_new_files()
    text.write_text("new")
    assert watch.changed_files() == []

    new.write_text("new")
    other.write_text("changed again")
    assert watch.changed_files() == [str(new), str(other)]
    new.write_text("changed")
    assert watch.changed_files() == []

    new.write_text("changed before it was asked for")
    watch.include_new_files()
    own.write_text("changed")
    assert watch.changed_files() == [str(new), str(own)]


async def next_change(changes: AsyncGenerator[list[str]], make: Callable[[], object]) -> list[str]:
    waiting = asyncio.create_task(anext(changes))
    while not waiting.done():
        make()
        await asyncio.wait({waiting}, timeout=0.2)
    return waiting.result()


async def test_changes_are_told_as_they_come(tmp_path: Path) -> None:
    one, two = tmp_path / "one.py", tmp_path / "sub" / "two.py"
    one.write_text("")
    files = {str(one)}

    watch = FileWatcher(lambda: files)
    async with asyncio.timeout(HANG_S), aclosing(watch.changes()) as changes:
        assert await next_change(changes, one.touch) == [str(one)]
        two.parent.mkdir()
        two.write_text("")
        files.add(str(two))
        watch.changed_files()
        two.write_text("changed while nobody waited")
        # The first report may be of an earlier touch.
        while await anext(changes) != [str(two)]:
            pass
        assert await next_change(changes, two.touch) == [str(two)]
