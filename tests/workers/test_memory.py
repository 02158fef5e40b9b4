"""How much memory is left for processes."""

import os
import resource
from pathlib import Path

import psutil
import pytest

from uncork_workers.memory import cgroup_file, free_bytes, free_in_cgroup, resident_bytes

NAMES = ("memory.oom_control", "memory.events")


def test_files_are_those_of_the_cgroup_of_the_process(tmp_path: Path) -> None:
    service, slice_ = tmp_path / "a.slice/b:c.service", tmp_path / "memory/a.slice"
    for folder in (service, slice_):
        folder.mkdir(parents=True)
        (folder / "memory.oom_control").touch()
    v2 = "0::/a.slice/b:c.service\n"
    v1 = f"9:name=systemd:/\n4:cpu,memory:/a.slice\n{v2}"
    (service / "memory.events").touch()

    assert cgroup_file(v2, tmp_path, *NAMES) == service / "memory.events"
    assert cgroup_file(v1, tmp_path, *NAMES) == slice_ / "memory.oom_control"
    assert cgroup_file("0::/\n", tmp_path, *NAMES) == tmp_path / "memory.events"
    # In a container, the host's path is not mounted.
    assert cgroup_file("4:memory:/docker/1f\n", tmp_path, *NAMES) == tmp_path / "memory/memory.oom_control"
    assert cgroup_file("1:cpu:/\n", tmp_path, *NAMES) is None


@pytest.mark.parametrize(
    ("limit", "counts", "free"),
    [
        ("1000\n", "anon 500\ninactive_file 100\n", 500),
        ("1000\n", "inactive_file 100\ntotal_inactive_file 200\n", 600),
        ("200\n", "inactive_file 0\n", 0),
        ("max\n", "inactive_file 100\n", None),
        ("1000\n", "anon 500\n", None),
    ],
)
def test_what_a_cgroup_leaves(tmp_path: Path, limit: str, counts: str, free: int | None) -> None:
    files = [tmp_path / name for name in ("memory.max", "memory.current", "memory.stat")]
    assert free_in_cgroup(*files) is None
    for file, text in zip(files, (limit, "600\n", counts), strict=True):
        file.write_text(text)
    assert free_in_cgroup(*files) == free


def test_no_more_is_free_than_the_machine_has() -> None:
    assert 0 <= free_bytes() <= psutil.virtual_memory().total


def test_where_no_file_can_be_opened_the_memory_is_not_known() -> None:
    """An error would end the watchdog of a worker, or the server whose workers are recycled."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
    try:
        used = resident_bytes(os.getpid())
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert used == 0
