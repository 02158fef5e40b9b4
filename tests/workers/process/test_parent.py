"""A process dies with its parent, whatever it is doing."""

import subprocess
import sys

import psutil
import pytest

# Its parent is told its number, and it sleeps without looking at anything.
CHILD = """
import os, sys, time
from uncork_workers.process.parent import die_with
sys.platform = sys.argv[2]
die_with(int(sys.argv[1]))
print(os.getpid(), flush=True)
time.sleep(600)
"""
PARENT = f"""
import os, subprocess, sys
subprocess.run([sys.executable, "-c", {CHILD!r}, str(os.getpid()), sys.argv[1]])
"""
# Only Linux ends it by itself; elsewhere a thread looks, and that works here too.
PLATFORMS = ["linux", "darwin"] if sys.platform == "linux" else [sys.platform]


@pytest.mark.parametrize("platform", PLATFORMS)
def test_a_process_dies_when_its_parent_is_killed(platform: str) -> None:
    """Although nobody tells it, and its own code does not look."""
    command = [sys.executable, "-c", PARENT, platform]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        child = psutil.Process(int(parent.stdout.readline()))
        parent.kill()
        child.wait(timeout=10)


@pytest.mark.parametrize("platform", PLATFORMS)
def test_a_process_whose_parent_has_ended_already_goes_at_once(platform: str) -> None:
    """Its parent now is another one."""
    command = [sys.executable, "-c", CHILD, "1", platform]
    done = subprocess.run(command, capture_output=True, check=True, text=True, timeout=60)
    assert done.stdout == ""
