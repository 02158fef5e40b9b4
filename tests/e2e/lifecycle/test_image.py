"""The image of deploy/Containerfile, on a base made from Debian's packages, and run by podman."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from tests.deploy.manifests import chart, container
from tests.e2e.server import HTTP, ROOT, eventually, process_of
from tests.loops import HANG_S
from uncork_loadtests.servers import reserved_port

CONTAINERFILE = ROOT / "deploy/Containerfile"
SERVICES = ROOT / "tests/packaging/services"
NEEDED = ("podman", "runc", "mmdebstrap", "apt-get")
TARGET = "/srv/echo.py:Echo"
HOST = ("--network=host",)
BUILD = ("build", "--isolation=chroot", "--pull=never")
# As the base image has it, which is not fetched from a registry here.
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
# Docker's defaults are more than root may ask for in a container.
LIMITS = ("--ulimit", "nofile=4096:4096", "--ulimit", "nproc=4096:4096")
# As in deploy/helm.
SECURITY = ("--read-only", "--cap-drop=ALL", "--security-opt=no-new-privileges", "--tmpfs=/tmp:size=16m")

pytestmark = [
    pytest.mark.long_run,
    pytest.mark.skipif(
        os.geteuid() != 0 or not all(map(shutil.which, NEEDED)), reason=f"needs root, {', '.join(NEEDED)}"
    ),
]


def succeed(*command: str | Path) -> str:
    """Run a command, which may download much, and return its output."""
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command}: {done.stdout[-2000:]}{done.stderr[-4000:]}"
    return done.stdout.strip()


def settings_of_pip(folder: Path) -> list[str]:
    """Return volumes with where this machine's pip gets packages, and certificates, for the build."""
    listed = succeed(sys.executable, "-m", "pip", "config", "list")
    found = dict(re.findall(r"^(?:global|:env:)\.([\w-]+)='(.*)'$", listed, re.MULTILINE))
    names = ("index-url", "trusted-host", "proxy", "timeout")
    lines = [f"{name} = {found[name]}" for name in names if name in found]
    volumes = [f"{folder / 'pip.conf'}:/etc/pip.conf:ro"]
    if "cert" in found:
        lines.append("cert = /run/cert.pem")
        volumes.append(f"{found['cert']}:/run/cert.pem:ro")
    (folder / "pip.conf").write_text("\n".join(["[global]", *lines]))
    return [f"--volume={volume}" for volume in volumes]


class Image:
    """The image, in a storage of its own."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        places = (f"--root={folder / 'storage'}", f"--runroot={folder / 'run'}", f"--tmpdir={folder / 'tmp'}")
        # Works without systemd, and on cgroups of either version.
        self._podman = ("podman", "--runtime=runc", "--cgroup-manager=cgroupfs", *places)
        self._containers = count()

    def podman(self, *arguments: str | Path) -> str:
        return succeed(*self._podman, *arguments)

    def inside(self, container: str) -> list[str]:
        """Return the command line that runs a command in a container."""
        return [*self._podman, "exec", container]

    def build(self) -> None:
        """Build it on the release of Debian that is its default base, from this machine's mirror."""
        [suite] = re.findall(r"^ARG BASE=\S+/debian:(\w+)-slim$", CONTAINERFILE.read_text(), re.MULTILINE)
        targets = ("--format", "$(SITE)", "Created-By: Packages", "Origin: Debian", "Label: Debian")
        mirrors = succeed("apt-get", "indextargets", *targets).splitlines()
        if not mirrors:
            pytest.skip("needs a mirror of Debian in the sources of apt")
        base = self._folder / "base.tar"
        succeed("mmdebstrap", "--variant=minbase", suite, base, f"deb {mirrors[0]} {suite} main")
        self.podman("import", f"--change=ENV PATH={PATH}", base, "localhost/base")
        base.unlink()
        settings = ("--format=docker", "--build-arg=BASE=localhost/base", *settings_of_pip(self._folder))
        self.podman(*BUILD, *settings, "--tag=uncork", f"--file={CONTAINERFILE}", ROOT)

    def delete(self) -> None:
        """Delete the storage, with all containers."""
        self.podman("rm", "--all", "--force", "--time=0")
        subprocess.run(["umount", self._folder / "storage/overlay"], check=False, capture_output=True)
        shutil.rmtree(self._folder)

    def command(self, verb: str, *serve: str, options: tuple[str, ...] = HOST) -> tuple[str, list[str]]:
        """Return the name of a new container with arguments for `uncork`, and the command that makes it."""
        name = f"container-{next(self._containers)}"
        options = (f"--volume={SERVICES}:/srv:ro", *LIMITS, *SECURITY, *options)
        return name, [*self._podman, verb, f"--name={name}", *options, "localhost/uncork", *serve]


@pytest.fixture(scope="module")
def image() -> Iterator[Image]:
    # podman accepts no path of its state of more than 50 characters.
    made = Image(Path(tempfile.mkdtemp()))
    try:
        made.build()
        yield made
    finally:
        made.delete()


def test_it_serves_and_stops(image: Image) -> None:
    """As a user without rights, on a root that cannot be written."""
    with reserved_port() as port:
        health = f"--env=LIVEZ_URL=http://127.0.0.1:{port}/livez"
        name, command = image.command("run", "serve", TARGET, f"--port={port}", options=(*HOST, health))
        with process_of(*command) as server:
            server.wait_until_ready()
            answer = HTTP.post(f"{server.base}/echo", json=[1, 2]).json()
            pages = [HTTP.get(f"{server.base}{path}").status_code for path in ("/docs", "/dashboard")]
            user = image.podman("exec", name, "id", "--user")
            first = image.podman("exec", name, "cat", "/proc/1/cmdline")
            image.podman("healthcheck", "run", name)
            image.podman("stop", f"--time={HANG_S:.0f}", name)
            code = server.exit_code()

    assert (answer, pages) == ([1, 2], [200, 200])
    assert (user, "serve" in first) == ("10001", True)
    assert code == 0, server.output


@pytest.mark.parametrize("delay_s", [0.0, 0.1, 0.2, 0.3, 0.5, 0.7, 1.0, 1.4, 2.0])
def test_process_1_ends_by_one_signal_at_any_time(image: Image, delay_s: float) -> None:
    """While it imports, starts workers or serves; the handler is there before anything else is imported."""
    name, command = image.command("create", "serve", TARGET, "--port=0")
    succeed(*command)
    image.podman("init", name)
    process = Path("/proc", image.podman("inspect", "--format={{.State.Pid}}", name))

    image.podman("start", name)
    eventually(
        lambda: (
            re.search(r"/opt/uncork/lib/\S+\.so$", (process / "maps").read_text(), re.MULTILINE) is not None
        )
    )
    time.sleep(delay_s)
    os.kill(int(process.name), signal.SIGTERM)

    eventually(lambda: image.podman("inspect", "--format={{.State.Status}}", name) == "exited")
    code = int(image.podman("inspect", "--format={{.State.ExitCode}}", name))
    assert code in (0, 128 + signal.SIGTERM), image.podman("logs", name)


def test_it_runs_what_the_chart_says(image: Image) -> None:
    """With the arguments and variables of the pod, whose probes it passes."""
    pod = container(chart(f"target={TARGET},drainDelaySeconds=0")["Deployment", "digits"]["spec"])
    variables = [f"--env={one['name']}={one['value']}" for one in pod["env"]]
    ports = {one["name"]: one["containerPort"] for one in pod["ports"]}
    name, command = image.command("run", *pod["args"], options=("--detach", "--network=none", *variables))
    succeed(*command)

    def asked(port: str, path: str, body: str = "None") -> str:
        """Return the response, or nothing if there is none."""
        request = f"'http://127.0.0.1:{ports[port]}{path}', {body}, {{'content-type': 'application/json'}}"
        ask = f"import urllib.request as u; print(u.urlopen(u.Request({request})).read().decode())"
        done = subprocess.run([*image.inside(name), "python", "-c", ask], capture_output=True, text=True)
        return done.stdout.strip()

    ready, alive = (pod[probe]["httpGet"] for probe in ("readinessProbe", "livenessProbe"))
    eventually(lambda: bool(asked(ready["port"], ready["path"])))
    assert asked(alive["port"], alive["path"])
    assert asked("http", "/echo", "b'[1, 2]'") == "[1,2]"
    image.podman("stop", f"--time={HANG_S:.0f}", name)
    assert image.podman("inspect", "--format={{.State.ExitCode}}", name) == "0"


def test_another_layer_can_add_packages(image: Image, tmp_path: Path) -> None:
    """As the guide does: `pip` installs into the environment of `uncork`."""
    (tmp_path / "Containerfile").write_text("FROM localhost/uncork\nUSER root\nRUN pip --version\n")

    built = image.podman(*BUILD, tmp_path)

    assert "from /opt/uncork/lib/" in built
