"""Start and stop: usage errors, setup that fails, drains, and no process left behind."""

import asyncio
import contextlib
import os
import re
import signal
import subprocess
import sys
import termios
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from tests.e2e.server import HTTP, PROBE, SERVICES, Server, eventually, run_uncork, serving
from tests.loops import HANG_S


def test_a_module_that_lacks_a_package_is_told_once(tmp_path: Path) -> None:
    """The traceback says where; the last line what, and what to do."""
    (tmp_path / "service.py").write_text("import no_such_package\n")

    result = run_uncork("serve", f"{tmp_path / 'service.py'}:S", "--port", "0", "--workers", "2")

    assert result.returncode == 2
    assert result.stderr.count("uncork serve: ") == 1
    assert "uncork serve: " in result.stderr.splitlines()[-1]
    assert result.stderr.count("import no_such_package") == 1
    assert result.stderr.count("cannot be imported") == 1
    assert result.stderr.count("install it for the Python that runs the workers") == 1


def test_a_setup_that_fails_is_shown_and_told() -> None:
    """The user's traceback is in the terminal, the gateway is alive but not ready and says why."""
    with serving(f"{SERVICES / 'probe.py'}:NoSetup", wait=False) as server:
        server.wait_for_address()
        eventually(lambda: "no weights here" in server.output)

        assert "Traceback" in server.output
        assert "in setup" in server.output
        assert HTTP.get(f"{server.base}/livez").status_code == 200
        ready = HTTP.get(f"{server.base}/readyz")
        assert ready.status_code == 503
        eventually(lambda: "RuntimeError: no weights here" in HTTP.get(f"{server.base}/readyz").text)
        refused = HTTP.post(f"{server.base}/echo", json=1)
        assert refused.status_code == 503
        assert int(refused.headers["retry-after"]) >= 1

        server.terminate()
        assert server.exit_code() == 0


SLOW_SETUP = """
import time
from uncork import Service, api
from uncork.adapters import Json

class Slow(Service):
    def setup(self):
        time.sleep(600)

    @api(input=Json())
    def echo(self, items):
        return items
"""


def on_a_terminal(*command: str) -> str:
    """All that a command writes to a terminal of 100 columns, until it ends by itself."""
    ours, its = os.openpty()
    termios.tcsetwinsize(its, (24, 100))
    environment = {**os.environ, "TERM": "xterm-256color"}
    process = subprocess.Popen(
        [sys.executable, "-m", "uncork", *command], stdout=its, stderr=its, stdin=its, env=environment
    )
    os.close(its)
    written = b""
    with contextlib.suppress(OSError):  # as reading ends when nobody has the terminal open any more
        while part := os.read(ours, 65536):
            written += part
    os.close(ours)
    process.wait()
    return written.decode()


@pytest.mark.slow
def test_a_terminal_has_colours(tmp_path: Path) -> None:
    """What is wrong is in red, and what workers do until it is known is shown for as long."""
    (tmp_path / "wrong.py").write_text("import time\ntime.sleep(0.7)\nimport no_such_package\n")

    text = on_a_terminal("serve", f"{tmp_path / 'wrong.py'}:S", "--port", "0")

    assert "worker 0: import, " in text
    assert re.search(r"\x1b\[1;31muncork serve:\x1b\[0m .* -m pip install no_such_package\r\n$", text)


async def drain(server: Server) -> list[httpx.Response]:
    """Press Ctrl-C on a server with one batch running and one request held; return all answers."""
    async with httpx.AsyncClient(base_url=server.base, timeout=HANG_S) as http:
        [worker] = server.workers()
        os.kill(worker, signal.SIGSTOP)
        running = asyncio.create_task(http.post("/sleep", json=0))
        await asyncio.to_thread(eventually, lambda: server.metric("uncork_workers", state="busy") == 1)
        held = asyncio.create_task(http.post("/remember", json="held"))
        await asyncio.to_thread(eventually, lambda: server.metric("uncork_queue_rows") == 1)
        os.killpg(server.process.pid, signal.SIGINT)
        eventually(lambda: HTTP.get(f"{server.base}/readyz").status_code == 503)
        late = await http.post("/remember", json="late")
        os.kill(worker, signal.SIGCONT)
        return [await running, await held, late]


def test_a_stop_answers_what_was_accepted_and_refuses_the_rest() -> None:
    """Running and queued requests are answered, later ones get 503, and the exit code is 0.

    The signal goes to the whole process group, as from a terminal: workers must ignore it.
    """
    with serving(PROBE) as server:
        workers = server.workers()

        running, held, late = asyncio.run(drain(server))

        assert running.json() in workers
        assert held.json() == "held"
        assert late.status_code == 503
        assert int(late.headers["retry-after"]) >= 1
        assert server.exit_code() == 0
        assert not any(is_alive(worker) for worker in workers)
        says = "stopping: waiting for 2 pending requests; press Ctrl-C again to drop the rest\n"
        assert says in server.output
        assert server.output.endswith("gateway: stopped\n")
        assert "\x1b" not in server.output
        assert "Traceback" not in server.output


def test_a_second_signal_ends_the_delay_and_the_wait() -> None:
    """Until then, a server that delays its stop accepts requests; idle connections end with it."""

    async def run(server: Server) -> int:
        async with httpx.AsyncClient(base_url=server.base, timeout=HANG_S) as http:
            assert (await http.post("/remember", json="before")).json() == "before"
            slow = asyncio.create_task(http.post("/sleep", json=600))
            await asyncio.to_thread(eventually, lambda: server.metric("uncork_workers", state="busy") == 1)
            server.terminate()
            await asyncio.to_thread(eventually, lambda: not server.ready())
            held = asyncio.create_task(http.post("/remember", json="during the delay"))
            await asyncio.to_thread(eventually, lambda: server.metric("uncork_queue_rows") == 1)
            server.terminate()
            code = await asyncio.to_thread(server.exit_code)
            await asyncio.gather(slow, held, return_exceptions=True)
            return code

    with (
        serving(PROBE, "--drain-delay", "3600") as server,
        httpx.Client(base_url=server.base, timeout=HANG_S) as idle,
    ):
        workers = server.workers()
        assert idle.get("/livez").status_code == 200

        assert asyncio.run(run(server)) == 0
        assert not any(is_alive(worker) for worker in workers)
        with pytest.raises(httpx.TransportError):
            idle.get("/livez")


@pytest.mark.slow
def test_a_drain_is_bounded() -> None:
    with (
        serving(PROBE, "--drain-delay", "0.1", "--drain-timeout", "0.5") as server,
        httpx.Client(base_url=server.base, timeout=HANG_S) as keeps_open,
        ThreadPoolExecutor(1) as pool,
    ):
        workers = server.workers()
        slow = pool.submit(keeps_open.post, "/sleep", json=25)
        eventually(lambda: server.metric("uncork_workers", state="busy") == 1)
        server.terminate()

        assert server.exit_code() == 0
        assert slow.result().status_code == 503
        assert slow.result().headers["connection"] == "close"
        assert not any(is_alive(worker) for worker in workers)


@pytest.mark.slow
def test_a_server_whose_workers_are_starting_can_be_stopped(tmp_path: Path) -> None:
    (tmp_path / "slow.py").write_text(SLOW_SETUP)
    with serving(f"{tmp_path}/slow.py:Slow", wait=False) as server:
        server.wait_for_address()
        eventually(lambda: "worker 0 has been in setup for" in HTTP.get(f"{server.base}/readyz").text)
        workers = server.workers()
        server.terminate()
        server.terminate()

        assert server.exit_code() == 0
        assert len(workers) == 1
        assert not is_alive(workers[0])


def test_workers_do_not_outlive_a_gateway_that_was_killed() -> None:
    with serving(PROBE, "--workers", "2") as server, ThreadPoolExecutor(1) as pool:
        workers = server.workers()
        assert len(workers) == 2
        slow = pool.submit(HTTP.post, f"{server.base}/sleep", json=600)
        eventually(lambda: server.metric("uncork_workers", state="busy") == 1)

        server.process.kill()
        server.process.wait()

        eventually(lambda: not any(is_alive(worker) for worker in workers))
        assert isinstance(slow.exception(), httpx.TransportError)


def is_alive(process: int) -> bool:
    """Whether a process exists and is not a zombie that nobody has waited for."""
    try:
        status = Path(f"/proc/{process}/stat").read_text()
    except FileNotFoundError:
        return False
    return status.rpartition(")")[2].split()[0] != "Z"
