"""Ctrl-C on ``uncork simulate``, as a terminal sends it: to the command and its processes at once."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.server import ROOT, eventually
from tests.loops import HANG_S

pytestmark = pytest.mark.slow

SIMULATE = ("simulate", "--load", "0.2,0.5,0.8", "--requests", "1000000", "--processes", "2")
# The same command, which is interrupted where it would leave a lock behind.
INTERRUPTED_IN_WAIT = """
import signal
import sys
from concurrent.futures import _base

from uncork.cli.app import main

acquire_all = _base._AcquireFutures.__enter__


def acquire_in_two_steps(futures):
    futures.futures[0]._condition.acquire()
    signal.raise_signal(signal.SIGINT)
    futures.futures[0]._condition.release()
    return acquire_all(futures)


if __name__ == "__main__":
    _base._AcquireFutures.__enter__ = acquire_in_two_steps
    main()
"""


def children(pid: int) -> list[int]:
    """Process ids of the children of a process."""
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def is_gone(group: int) -> bool:
    """Whether a process group has no members left."""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return True
    return False


def started(*command: str) -> subprocess.Popen[str]:
    """The simulation in a process group of its own."""
    return subprocess.Popen(
        [sys.executable, *command, *SIMULATE],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=ROOT,
        start_new_session=True,
        # Tests that a shell runs in the background ignore Ctrl-C, and what they start inherits that.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        text=True,
    )


def test_ctrl_c_ends_the_command_and_its_processes() -> None:
    """The exit code is 130, and no process prints a traceback, not even one that is still importing."""
    process = started("-m", "uncork")
    try:
        # Two that simulate, and Python's own that keeps track of what they share.
        eventually(lambda: len(children(process.pid)) == 3)
        os.killpg(process.pid, signal.SIGINT)
        out, err = process.communicate(timeout=HANG_S)
        assert (process.returncode, out, err) == (130, "", "")
        eventually(lambda: is_gone(process.pid))
    finally:
        if not is_gone(process.pid):
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def test_ctrl_c_while_it_waits_for_results(tmp_path: Path) -> None:
    """An interrupt in the middle of taking the futures' locks ends the command, too."""
    script = tmp_path / "interrupted.py"
    script.write_text(INTERRUPTED_IN_WAIT)
    process = started(str(script))
    try:
        out, err = process.communicate(timeout=HANG_S)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        pytest.fail("an interrupt while waiting for results stopped the command for good")
    assert (process.returncode, out, err) == (130, "", "")
