"""How `uncork reload` reaches a server."""

import asyncio
import contextlib
import os
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from uncork.cli.app import app
from uncork.server.control_socket import Outcome, ask, listening
from uncork.server.private_folders import make_private

PORT = 4711


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    monkeypatch.setattr(tempfile, "tempdir", None)
    yield tmp_path / f"uncork-{os.getuid()}"
    tempfile.tempdir = None


class Wishes:
    def __init__(self, outcome: Outcome) -> None:
        self.outcome = outcome
        self.came = asyncio.Event()
        self.gate = asyncio.Event()
        self.given_up = asyncio.Event()

    async def __call__(self) -> Outcome:
        self.came.set()
        try:
            await self.gate.wait()
        except asyncio.CancelledError:
            self.given_up.set()
            raise
        return self.outcome


def reload_with(outcome: Outcome) -> Result:
    async def scenario() -> Result:
        wishes = Wishes(outcome)
        wishes.gate.set()
        async with listening(PORT, {"reload": wishes}):
            return await asyncio.to_thread(CliRunner().invoke, app, ["reload", "--port", str(PORT)])

    return asyncio.run(scenario())


def test_a_reload_is_told() -> None:
    result = reload_with(Outcome(0, "reloaded after 1.2 s"))
    assert (result.exit_code, result.stdout, result.stderr) == (0, "reloaded after 1.2 s\n", "")


@pytest.mark.parametrize("code", [1, 2])
def test_a_reload_that_fails_is_told(code: int) -> None:
    result = reload_with(Outcome(code, "failed, the old workers keep running: no weights"))
    assert (result.exit_code, result.stdout) == (code, "")
    assert result.stderr == "uncork reload: failed, the old workers keep running: no weights\n"


def test_no_server_is_wrong_usage() -> None:
    result = CliRunner().invoke(app, ["reload", "--port", str(PORT)])
    assert result.exit_code == 2
    assert "no server of this user listens on port 4711" in result.stderr


async def test_who_leaves_does_not_wish_it_any_more(folder: Path) -> None:
    """As with Ctrl-C; the next one is served."""
    wishes = Wishes(Outcome(0, "done"))
    async with listening(PORT, {"reload": wishes}):
        _, writer = await asyncio.open_unix_connection(str(folder / f"{PORT}.sock"))
        writer.write(b"reload\n")
        await wishes.came.wait()
        writer.close()
        await wishes.given_up.wait()
        wishes.gate.set()
        assert await asyncio.to_thread(ask, PORT, "reload") == Outcome(0, "done")


async def test_a_server_that_ends_meanwhile_is_told() -> None:
    wishes = Wishes(Outcome(0, "done"))
    async with contextlib.AsyncExitStack() as stack:
        await stack.enter_async_context(listening(PORT, {"reload": wishes}))
        asking = asyncio.create_task(asyncio.to_thread(ask, PORT, "reload"))
        await wishes.came.wait()
    assert await asking == Outcome(1, "the server stopped before the reload was complete")


async def test_other_wishes_are_refused(folder: Path) -> None:
    async with listening(PORT, {"reload": Wishes(Outcome(0, "done"))}):
        reader, writer = await asyncio.open_unix_connection(str(folder / f"{PORT}.sock"))
        writer.write(b"stop\n")
        assert b"accepts only reload" in await reader.read()
        writer.close()


def test_the_socket_of_a_killed_server_makes_room(folder: Path) -> None:
    """Nobody listens there; afterwards it is gone."""
    make_private(folder)
    left = folder / f"{PORT}.sock"
    with socket.socket(socket.AF_UNIX) as killed:
        killed.bind(str(left))
    assert ask(PORT, "reload").code == 2

    assert reload_with(Outcome(0, "done")).exit_code == 0
    assert not left.exists()


async def test_two_servers_on_a_port_do_not_take_each_others_wishes(caplog: pytest.LogCaptureFixture) -> None:
    """They may listen on different addresses; the second can be reached by SIGHUP."""
    first, second = Wishes(Outcome(0, "first")), Wishes(Outcome(0, "second"))
    first.gate.set()
    async with listening(PORT, {"reload": first}):
        async with listening(PORT, {"reload": second}):
            pass
        assert await asyncio.to_thread(ask, PORT, "reload") == Outcome(0, "first")
    assert "to reload, send SIGHUP" in caplog.text


def test_a_folder_of_somebody_else_is_not_used(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The server runs without it."""
    folder.mkdir(mode=0o755)
    result = reload_with(Outcome(0, "done"))

    assert result.exit_code == 2
    assert "must be a folder of this user that no other user can access" in caplog.text
    assert list(folder.iterdir()) == []
