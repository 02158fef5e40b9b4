"""Workers are replaced under load, by wish or because they have done enough, and nobody notices."""

import os
import pty
import signal
import sys
from functools import partial
from pathlib import Path

import pytest

from tests.e2e.lifecycle.test_reload import answers, has_workers, load, write
from tests.e2e.server import HTTP, eventually, serving

pytestmark = pytest.mark.slow


@pytest.fixture
def service(tmp_path: Path) -> str:
    write(tmp_path, "one")
    (tmp_path / "answers.py").write_text("ANSWER = 'a'")
    return f"{tmp_path}/service.py:Echo"


def test_new_code_takes_over_by_wish(tmp_path: Path, service: str) -> None:
    """By the command and by SIGHUP; code that fails changes nothing, and the command reports it."""
    with serving(service, "--workers", "2") as server:
        with load(server) as replies:
            eventually(lambda: ("one", "a") in answers(replies))
            write(tmp_path, "second")
            reload = server.run("reload")
            assert (reload.returncode, reload.stderr) == (0, "")
            assert reload.stdout.startswith("reloaded after ")
            eventually(lambda: ("second", "a") in answers(replies))
            write(tmp_path, "broken", setup="raise OSError('no weights')")
            failed = server.run("reload")
            assert failed.returncode == 1
            assert "failed, the old workers keep running: new worker " in failed.stderr
            assert "failed in setup: OSError: no weights" in failed.stderr
            write(tmp_path, "number three")
            server.process.send_signal(signal.SIGHUP)
            eventually(lambda: ("number three", "a") in answers(replies))
        eventually(partial(has_workers, server, 2))

        assert answers(replies)
        assert {reply.status for reply in replies} == {200}


def test_workers_are_recycled_under_load(tmp_path: Path, service: str) -> None:
    """New ones of the same code, one after the other; every request is answered."""
    # Each batch leaves something behind.
    text = (tmp_path / "service.py").read_text()
    (tmp_path / "service.py").write_text(
        f"left = []\n{text.replace('time.sleep(0.002)', 'left.append(bytes(10**6))')}"
    )
    with serving(service, "--workers", "2", "--max-worker-memory", "100MiB") as server:
        first = set(server.workers())
        with load(server) as replies:
            eventually(lambda: not first & set(server.workers()))
            eventually(partial(has_workers, server, 2))

        assert answers(replies)
        assert {reply.status for reply in replies} == {200}
        assert "MiB; a new worker" in server.output
        assert server.metric("uncork_worker_restarts_total") == 0


def test_a_server_goes_with_its_terminal(service: str) -> None:
    """The SIGHUP that it gets then is no wish for new workers."""
    child, terminal = pty.fork()
    if child == 0:
        command = [sys.executable, "-m", "uncork", "serve", service, "--port", "0"]
        os.execv(command[0], command)
    output = b""
    while b"ready after" not in output:
        output += os.read(terminal, 65536)
    os.close(terminal)

    assert os.waitpid(child, 0) == (child, 0)


def test_a_worker_that_comes_back_with_other_code_is_reported(tmp_path: Path, service: str) -> None:
    """Once, and not after a reload."""
    with serving(service, "--max-batches-per-worker", "1") as server:
        first = set(server.workers())
        (tmp_path / "answers.py").write_text("ANSWER = 'b'")
        reload = server.run("reload")
        assert reload.returncode == 0
        eventually(lambda: not first & set(server.workers()))
        assert "with other code" not in server.output
        (tmp_path / "answers.py").write_text("ANSWER = 'c'")
        assert HTTP.post(f"{server.base}/predict", json=1).status_code == 200
        eventually(lambda: "worker 0 was started again with other code" in server.output)
        eventually(server.ready)
