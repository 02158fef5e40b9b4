"""``uncork serve --reload``: new code takes over under load, and nobody notices but by the answers."""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path

import pytest

from tests.e2e.lifecycle.test_lifecycle import is_alive
from tests.e2e.load import Reply, asking
from tests.e2e.server import HTTP, Server, eventually, serving

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


def load(server: Server) -> AbstractContextManager[list[Reply]]:
    return asking(server, path="/predict", clients=_CLIENTS)


def answers(replies: Sequence[Reply]) -> set[tuple[str, str]]:
    """The versions of the service and of its module that clients have seen; each got its own answer."""
    found = [(reply.number, reply.value) for reply in list(replies) if reply.status == 200]
    assert all(echoed == number for number, (echoed, _, _) in found)
    return {(version, answer) for _, (_, version, answer) in found}


def test_versions_take_over_under_load(tmp_path: Path) -> None:
    """Every request is answered, with a broken version in between, one that fails in setup, and a new api."""
    write(tmp_path, "one")
    (tmp_path / "answers.py").write_text("ANSWER = 'a'")
    with serving(f"{tmp_path}/service.py:Echo", "--workers", "2", "--reload") as server:
        workers = set(server.workers())
        with load(server) as replies:
            eventually(lambda: ("one", "a") in answers(replies))
            write(tmp_path, "two")
            eventually(lambda: ("two", "a") in answers(replies))
            (tmp_path / "answers.py").write_text("ANSWER = 'b'")
            eventually(lambda: ("two", "b") in answers(replies))
            (tmp_path / "service.py").write_text("class Echo(")
            eventually(
                lambda: "service.py changed: reload failed, the old workers keep running" in server.output
            )
            write(tmp_path, "bad", setup="raise OSError('no weights')")
            eventually(lambda: "failed in setup: OSError: no weights" in server.output)
            write(tmp_path, "three", more=MORE)
            eventually(lambda: ("three", "b") in answers(replies))
            eventually(lambda: HTTP.post(f"{server.base}/more", json=5).status_code == 200)
        eventually(partial(has_workers, server, 2))
        workers |= set(server.workers())

        assert answers(replies) == {("one", "a"), ("two", "a"), ("two", "b"), ("three", "b")}
        assert {reply.status for reply in replies} == {200}
        assert "SyntaxError" in server.output
        assert "service.py changed: reloaded" in server.output
        # On a busy machine it may change while the reload before it runs, and be named with the next file.
        assert "answers.py" in server.output
        server.terminate()
        assert server.exit_code() == 0
    eventually(lambda: not any(is_alive(worker) for worker in workers))


def test_files_that_come_later_are_noticed(tmp_path: Path) -> None:
    """A module may be missing, which prevents the reload. Others change during a reload."""
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
        write(tmp_path, "two", setup="time.sleep(0.5)")
        eventually(partial(has_workers, server, 2))
        (tmp_path / "answers.py").write_text("ANSWER = 'b'")
        eventually(lambda: HTTP.post(f"{server.base}/predict", json=5).json() == [5, "two", "b"])


def has_workers(server: Server, count: int) -> bool:
    """Whether so many worker processes live."""
    return len(server.workers()) == count
