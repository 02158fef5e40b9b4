"""Where and how a server is started: links, closed streams, folders, process 1."""

import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from tests.e2e.server import HTTP, Server, eventually, running, serving
from uncork_loadtests.servers import reserved_port

pytestmark = pytest.mark.slow

SERVICE = """
import os
from uncork import Service, api
from uncork.adapters import Json

class Echo(Service):
    @api(input=Json(), mb_max_latency=5000)
    def echo(self, items):
        print("printed")
        os.write(1, b"written")
        return [VERSION] * len(items)
"""


def write(file: Path, version: str) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"VERSION = {version!r}\n{SERVICE}")
    return file


def answer(server: Server) -> object:
    reply = HTTP.post(f"{server.base}/echo", json=1, timeout=60)
    assert reply.status_code == 200, reply.text
    return reply.json()


def test_a_target_may_be_a_link(tmp_path: Path) -> None:
    """To a file of another name, also without the suffix, over a chain, and to another file at a reload."""
    for version in ("1", "2"):
        write(tmp_path / "releases" / version / f"service_{version}", version)
    (tmp_path / "now").symlink_to(tmp_path / "releases/1", target_is_directory=True)
    (tmp_path / "chain").symlink_to("now/service_1")
    (tmp_path / "current.py").symlink_to("chain")
    with serving(f"{tmp_path}/current.py:Echo") as server:
        assert answer(server) == "1"
        (tmp_path / "next").symlink_to("releases/2/service_2")
        (tmp_path / "next").replace(tmp_path / "chain")
        reload = server.run("reload")
        assert (reload.returncode, reload.stderr) == (0, "")
        assert answer(server) == "2"


def test_a_link_that_leads_elsewhere_is_a_change(tmp_path: Path) -> None:
    for version in ("1", "2"):
        write(tmp_path / version / "service.py", version)
    (tmp_path / "current").symlink_to("1")
    with serving(f"{tmp_path}/current/service.py:Echo", "--reload") as server:
        assert answer(server) == "1"
        (tmp_path / "next").symlink_to("2")
        (tmp_path / "next").replace(tmp_path / "current")
        eventually(lambda: answer(server) == "2")


def in_shell(redirections: str, *command: str) -> tuple[str, ...]:
    """Return what runs a command with redirections of a shell."""
    return ("bash", "-c", f'exec "$@" {redirections}', "bash", *command)


@pytest.mark.parametrize("redirections", ["<&- >&- 2>&-", "<&- > >(exec true) 2> >(exec true)"])
def test_standard_streams_may_be_closed(tmp_path: Path, redirections: str) -> None:
    """Or be pipes that nobody reads. No internal socket takes their numbers."""
    target = f"{write(tmp_path / 'service.py', '1')}:Echo"
    command = (sys.executable, "-m", "uncork", "serve", target, "--port")
    with (
        reserved_port() as port,
        subprocess.Popen(in_shell(redirections, *command, str(port)), stderr=subprocess.DEVNULL) as process,
    ):
        try:
            server = Server(process, Path(os.devnull))
            server.base = f"http://127.0.0.1:{port}"
            eventually(lambda: is_served(server))
            for _ in range(3):
                assert answer(server) == "1"
            for stream in (0, 1, 2):
                for pid in (process.pid, *server.workers()):
                    # A stream may be closed, and a child of the shell may be a zombie.
                    link = Path(f"/proc/{pid}/fd/{stream}")
                    assert not (link.is_symlink() and str(link.readlink()).startswith("socket:"))
        finally:
            process.terminate()
        assert process.wait(60) == 0


def is_served(server: Server) -> bool:
    try:
        return server.ready()
    except (OSError, httpx.ConnectError):
        return False


def test_a_folder_for_temporary_files_may_have_a_long_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    long = tmp_path / ("d" * 85)
    long.mkdir()
    target = f"{write(tmp_path / 'service.py', '1')}:Echo"
    monkeypatch.setenv("TMPDIR", str(long))
    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    with running("serve", target) as server:
        assert answer(server) == "1"
        reload = server.run("reload")
        assert (reload.returncode, reload.stderr) == (0, "")


def test_a_folder_for_temporary_files_may_be_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And paths may have spaces and any letters."""
    file = write(tmp_path / "mein Ordner 模型" / "mein dienst ü.py", "1")
    monkeypatch.setenv("TMPDIR", str(tmp_path / "missing"))
    with serving(f"{file}:Echo") as server:
        assert answer(server) == "1"


@pytest.mark.skipif(
    subprocess.run(["unshare", "--fork", "--pid", "true"], capture_output=True, check=False).returncode != 0,
    reason="this user may not create namespaces",
)
def test_process_1_ends_by_a_signal_while_it_imports(tmp_path: Path) -> None:
    """As in a container: without a handler, the system ignores SIGTERM for it."""
    module = tmp_path / "typer.py"
    module.write_text("import time\nprint('importing', flush=True)\ntime.sleep(600)\n")
    command = f"echo $$; exec {shlex.quote(sys.executable)} -m uncork serve x.py:X"
    with subprocess.Popen(
        ["unshare", "--fork", "--pid", "--kill-child", "--mount-proc", "bash", "-c", command],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "1\n"
        assert process.stdout.readline() == "importing\n"
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
        os.kill(int(children.read_text()), signal.SIGTERM)
        assert process.wait(60) == 128 + signal.SIGTERM
