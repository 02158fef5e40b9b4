"""The settings of a server with several services, at its start and when they are read again."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.uncork.config.asking import options_of
from tests.uncork.server.running.stopped import stopped
from uncork.server.options import ServeOptions
from uncork.server.running.reloading import Reloader
from uncork.server.running.settings import to_start

FILES = 2000
ONE = "[services.a]\ntarget = 'a.py:A'\nworkers = '2-6'\n"
TWO = f"{ONE}[services.b]\ntarget = 'b.py:B'\nworkers = 3\n"


@pytest.fixture(autouse=True)
def open_files() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (FILES, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def configured(file: Path, text: str) -> ServeOptions:
    file.write_text(text)
    options: ServeOptions = options_of("serve", "--config", file)
    return options


@pytest.mark.parametrize(
    ("text", "workers"), [("target = ['a.py:A']\nworkers = 5", 5), (ONE, 6), (TWO, 9)], ids=str
)
def test_clients_leave_files_for_the_workers_of_all_services(tmp_path: Path, text: str, workers: int) -> None:
    """The server and each service have one limit of client connections."""
    options, services = to_start(configured(tmp_path / "uncork.toml", text), warn=pytest.fail)
    left = {one.most_connections for one in (options, *services.values())}
    assert left == {FILES - 100 - 4 * workers}


async def test_a_reload_leaves_files_for_the_workers_of_all_services(tmp_path: Path) -> None:
    options = configured(tmp_path / "uncork.toml", ONE)
    running = stopped(options, tmp_path)
    front_end = running.gateway.front_end
    for text, workers in ((TWO, 9), (ONE, 6)):
        configured(tmp_path / "uncork.toml", text)
        await Reloader(running).read().apply()
        assert front_end.listener.limits.max_connections == FILES - 100 - 4 * workers
    front_end.close()
