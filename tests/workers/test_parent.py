"""A process dies with its parent, whatever it is doing."""

import os
import select
import subprocess
import sys

import pytest

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a thread looks for the parent")

# Its parent is told its number, and it sleeps without looking at anything.
CHILD = """
import os, sys, time
from uncork_workers.parent import die_with
die_with(int(sys.argv[1]))
print(os.getpid(), flush=True)
time.sleep(600)
"""
PARENT = f"""
import os, subprocess, sys
subprocess.run([sys.executable, "-c", {CHILD!r}, str(os.getpid())])
"""


def test_a_process_dies_when_its_parent_is_killed() -> None:
    """Although nobody tells it, and it does not look."""
    with subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        child = os.pidfd_open(int(parent.stdout.readline()))
        try:
            parent.kill()
            ended, _, _ = select.select([child], [], [], 10)
            assert ended
        finally:
            os.close(child)


def test_a_process_whose_parent_has_ended_already_goes_at_once() -> None:
    """Its parent now is another one."""
    done = subprocess.run(
        [sys.executable, "-c", CHILD, "1"], capture_output=True, check=True, text=True, timeout=60
    )
    assert done.stdout == ""
