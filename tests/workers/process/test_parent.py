"""A process ends with its parent."""

import subprocess
import sys

import psutil
import pytest

# It reports its pid to the parent, then sleeps.
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
# The thread that polls on other systems works on Linux too.
PLATFORMS = ["linux", "darwin"] if sys.platform == "linux" else [sys.platform]


@pytest.mark.parametrize("platform", PLATFORMS)
def test_a_process_dies_when_its_parent_is_killed(platform: str) -> None:
    command = [sys.executable, "-c", PARENT, platform]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        child = psutil.Process(int(parent.stdout.readline()))
        parent.kill()
        child.wait(timeout=10)


@pytest.mark.parametrize("platform", PLATFORMS)
def test_a_process_whose_parent_has_ended_already_goes_at_once(platform: str) -> None:
    command = [sys.executable, "-c", CHILD, "1", platform]
    done = subprocess.run(command, capture_output=True, check=True, text=True, timeout=60)
    assert done.stdout == ""
