"""The kernel's count of the processes that it has killed for lack of memory."""

import os
import signal
from pathlib import Path

import pytest

from tests.loops import until
from tests.workers.supervision.crowd import crowd
from uncork_workers.supervision.oom_kills import OomKills, kills_in

# Of Linux 6.18.
EVENTS = "low 0\nhigh 0\nmax 14\noom 2\noom_kill {}\noom_group_kill 0\nsock_throttled 0\n"
CONTROL = "oom_kill_disable 0\nunder_oom 0\noom_kill {}\n"


class Counter:
    """A file such as the kernel's, whose count only this test changes."""

    def __init__(self, folder: Path, count: int = 0) -> None:
        self.path = folder / "memory.events"
        self.shows(count)

    def shows(self, count: int) -> None:
        self.path.write_text(EVENTS.format(count))


@pytest.mark.parametrize("text", [EVENTS, CONTROL])
def test_both_versions_of_the_file_are_read(text: str) -> None:
    assert kills_in(text.format(17)) == 17


@pytest.mark.parametrize("text", ["", "oom_kill_disable 0\nunder_oom 0\n", "oom 3\noom_group_kill 4\n"])
def test_kernels_before_4_13_do_not_count(text: str) -> None:
    assert kills_in(text) is None


def test_only_a_count_that_is_one_higher_is_evidence(tmp_path: Path) -> None:
    """Of two kills it is unknown which belongs to a worker; a count that jumps back is of another cgroup."""
    counter = Counter(tmp_path, 7)
    kills = OomKills(counter.path)
    seen = {}
    for count in (7, 8, 8, 10, 11, 0, 1, 100):
        counter.shows(count)
        seen[count] = kills.is_one_more()

    assert seen == {7: False, 8: False, 10: False, 11: True, 0: False, 1: True, 100: False}


def test_a_file_that_vanishes_is_no_evidence_and_neither_is_its_return(tmp_path: Path) -> None:
    counter = Counter(tmp_path)
    kills = OomKills(counter.path)
    counter.path.unlink()
    assert not kills.is_one_more()
    counter.shows(1)
    assert not kills.is_one_more()
    counter.shows(2)
    assert kills.is_one_more()
    counter.path.write_text("oom_kill many\n")
    assert not kills.is_one_more()
    counter.path.unlink()
    counter.path.mkdir()
    assert not kills.is_one_more()


def test_systems_without_cgroups_know_of_no_kill() -> None:
    assert not OomKills(None).is_one_more()
    assert not OomKills(Path("/nowhere/memory.events")).is_one_more()
    OomKills.here()


async def test_a_worker_that_the_kernel_kills_is_reported(tmp_path: Path) -> None:
    """Also one that dies while it starts, and has run nothing."""
    counter = Counter(tmp_path)
    async with crowd(tmp_path, workers=1, oom_kills=OomKills(counter.path)) as them:
        [worker] = (await them.workers(1)).values()
        counter.shows(1)
        os.kill(worker.pid, signal.SIGKILL)
        ends = [await them.ends.get()]
        await until(lambda: them.processes.running)
        counter.shows(2)
        them.supervisor.kill(worker.launch + 1)
        ends.append(await them.ends.get())

    assert [end.victim for end in ends] == [worker.launch, worker.launch + 1]
    assert {end.how for end in ends} == {"was killed by SIGKILL, for lack of memory"}


async def test_other_deaths_are_not_blamed_on_the_kernel(tmp_path: Path) -> None:
    """A death by another signal, for which a child of the worker was killed; and any that happen at once."""
    counter = Counter(tmp_path)
    async with crowd(tmp_path, workers=3, oom_kills=OomKills(counter.path)) as them:
        workers = await them.workers(3)
        os.kill(workers[0].pid, signal.SIGKILL)
        ends = [await them.ends.get()]
        counter.shows(1)
        os.kill(workers[1].pid, signal.SIGABRT)
        ends.append(await them.ends.get())
        os.kill(workers[2].pid, signal.SIGKILL)
        ends.append(await them.ends.get())
        workers = await them.workers(3)
        counter.shows(4)
        for worker in workers.values():
            os.kill(worker.pid, signal.SIGKILL)
        ends += [await them.ends.get() for _ in workers]

    assert [end.victim for end in ends] == [None] * 6
