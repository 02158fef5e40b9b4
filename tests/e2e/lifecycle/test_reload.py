"""``uncork serve --reload``: new code takes over under load, and nobody notices but by the answers."""

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import httpx
import pytest

from tests.e2e.lifecycle.test_lifecycle import is_alive
from tests.e2e.server import HTTP, Server, eventually, serving
from tests.loops import HANG_S

pytestmark = pytest.mark.slow

SERVICE = """
import time

from answers import ANSWER
from uncork import Service, api
from uncork.adapters import Json


class Echo(Service):
    def setup(self):
        {setup}

    @api(input=Json(), idempotent=False, mb_max_latency=60_000)
    def predict(self, items):
        time.sleep(0.002)
        return [[item, "{version}", ANSWER] for item in items]
{more}
"""
MORE = """
    @api(input=Json())
    def more(self, items):
        return items
"""
_CLIENTS = 8


def write(folder: Path, version: str, *, setup: str = "pass", more: str = "") -> None:
    (folder / "service.py").write_text(SERVICE.format(version=version, setup=setup, more=more))


class Load:
    """Clients that ask again and again; what they were answered, as (status, version, answer of a module)."""

    def __init__(self, server: Server) -> None:
        self._url = f"{server.base}/predict"
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._ask, args=(number,)) for number in range(_CLIENTS)]
        self.seen: Counter[tuple[int, str, str]] = Counter()
        self.troubles: list[str] = []

    def sees(self, version: str, answer: str) -> bool:
        """Whether some client was answered so."""
        return self.seen[200, version, answer] > 0

    @contextmanager
    def running(self) -> Iterator[None]:
        """Ask until the block ends."""
        for thread in self._threads:
            thread.start()
        try:
            yield
        finally:
            self._stop.set()
            for thread in self._threads:
                thread.join()

    def _ask(self, number: int) -> None:
        with httpx.Client(timeout=HANG_S, verify=False) as http:
            count = 0
            while not self._stop.is_set():
                count += 1
                mine = [number, count]
                try:
                    reply = http.post(self._url, json=mine)
                    echoed, version, answer = reply.json() if reply.status_code == 200 else (mine, "", "")
                except (httpx.HTTPError, ValueError) as error:
                    self.troubles.append(repr(error))
                    return
                self.seen[reply.status_code, version, answer] += 1
                if echoed != mine:
                    self.troubles.append(f"{mine} was answered with {echoed}")


def test_versions_take_over_under_load(tmp_path: Path) -> None:
    """Every request is answered, with a broken version in between, one that fails in setup, and a new api."""
    write(tmp_path, "one")
    (tmp_path / "answers.py").write_text("ANSWER = 'a'")
    with serving(f"{tmp_path}/service.py:Echo", "--workers", "2", "--reload") as server:
        load = Load(server)
        workers = set(server.workers())
        with load.running():
            eventually(lambda: load.sees("one", "a"))
            write(tmp_path, "two")
            eventually(lambda: load.sees("two", "a"))
            (tmp_path / "answers.py").write_text("ANSWER = 'b'")
            eventually(lambda: load.sees("two", "b"))
            (tmp_path / "service.py").write_text("class Echo(")
            eventually(
                lambda: "service.py changed: reload failed, the old workers keep running" in server.output
            )
            write(tmp_path, "bad", setup="raise OSError('no weights')")
            eventually(lambda: "failed in setup: OSError: no weights" in server.output)
            write(tmp_path, "three", more=MORE)
            eventually(lambda: load.sees("three", "b"))
            eventually(lambda: HTTP.post(f"{server.base}/more", json=5).status_code == 200)
        eventually(partial(has_workers, server, 2))
        workers |= set(server.workers())

        assert load.troubles == []
        assert {(version, answer) for _, version, answer in load.seen} == {
            *[("one", "a"), ("two", "a"), ("two", "b"), ("three", "b")]
        }
        assert {status for status, _, _ in load.seen} == {200}
        assert "SyntaxError" in server.output
        assert "service.py changed: reloaded" in server.output
        # On a busy machine it may change while the reload before it runs, and be named with the next file.
        assert "answers.py" in server.output
        server.terminate()
        assert server.exit_code() == 0
    eventually(lambda: not any(is_alive(worker) for worker in workers))


def test_a_file_that_was_missing_is_noticed(tmp_path: Path) -> None:
    """What keeps the new version from being loaded may be a module that comes later."""
    write(tmp_path, "one")
    (tmp_path / "answers.py").write_text("ANSWER = 'a'")
    with serving(f"{tmp_path}/service.py:Echo", "--reload") as server:
        text = (tmp_path / "service.py").read_text()
        (tmp_path / "service.py").write_text(f"import later\n{text}")
        eventually(lambda: "No module named 'later'" in server.output)
        eventually(lambda: "the old workers keep running" in server.output)
        (tmp_path / "later.py").touch()
        eventually(lambda: "later.py changed: reloaded" in server.output)

        assert HTTP.post(f"{server.base}/predict", json=5).json() == [5, "one", "a"]
        eventually(partial(has_workers, server, 1))


def test_a_change_during_a_reload_is_not_forgotten(tmp_path: Path) -> None:
    write(tmp_path, "one")
    (tmp_path / "answers.py").write_text("ANSWER = 'a'")
    with serving(f"{tmp_path}/service.py:Echo", "--reload") as server:
        write(tmp_path, "two", setup="time.sleep(0.5)")
        eventually(partial(has_workers, server, 2))
        (tmp_path / "answers.py").write_text("ANSWER = 'b'")
        eventually(lambda: HTTP.post(f"{server.base}/predict", json=5).json() == [5, "two", "b"])


def has_workers(server: Server, count: int) -> bool:
    """Whether so many worker processes live."""
    return len(server.workers()) == count
