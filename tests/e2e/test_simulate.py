"""Ctrl-C on ``uncork simulate``, as a terminal sends it: to the command and its processes at once."""

import os
import signal
import subprocess
import sys
from pathlib import Path

from tests.e2e.server import ROOT, eventually


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


def test_ctrl_c_ends_the_command_and_its_processes() -> None:
    """The exit code is 130; nobody prints a traceback, those who are still loading neither."""
    process = subprocess.Popen(
        [sys.executable, "-m", "uncork", "simulate", "--matrix", "open", "--processes", "2"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=ROOT,
        start_new_session=True,
        text=True,
    )
    try:
        # Two that simulate, and Python's own that keeps track of what they share.
        eventually(lambda: len(children(process.pid)) == 3)
        os.killpg(process.pid, signal.SIGINT)
        out, err = process.communicate(timeout=30)
        assert (process.returncode, out, err) == (130, "", "")
        eventually(lambda: is_gone(process.pid))
    finally:
        if not is_gone(process.pid):
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
