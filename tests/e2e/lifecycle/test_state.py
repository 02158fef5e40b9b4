"""A server that starts again begins with what it has learned."""

import json
import stat
from pathlib import Path
from typing import Any

from tests.e2e.server import HTTP, Server, eventually, running

SERVICE = """
import time
from uncork import Service, api
from uncork.adapters import Json

class Slow(Service):
    @api(input=Json(), mb_max_latency=5000)
    def predict(self, items):
        time.sleep(0.2 + 0.001 * len(items))
        return items
"""


def predict(server: Server, times: int) -> None:
    for number in range(times):
        assert HTTP.post(f"{server.base}/predict", json=number).json() == number


def estimate(server: Server) -> Any:
    """The estimate on /status; None while it is not earned."""
    return HTTP.get(f"{server.base}/status").json()["apis"][0]["estimate"]


def test_what_was_learned_survives_a_restart(tmp_path: Path) -> None:
    """One batch confirms it, where otherwise five are needed; other code begins anew, as does --no-state."""
    service, folder = tmp_path / "service.py", tmp_path / "state"
    service.write_text(SERVICE)
    command = ("serve", f"{service}:Slow", "--state-folder", str(folder))
    with running(*command) as server:
        predict(server, 1)
        assert estimate(server) is None
        predict(server, 4)
        eventually(lambda: estimate(server) is not None)
        server.terminate()
        assert server.exit_code() == 0
    [file] = folder.iterdir()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    [[rows, seconds]] = json.loads(file.read_text())["apis"]["predict"]
    assert (rows, 0.2 < seconds < 2) == (1, True)

    with running(*command) as server:
        assert estimate(server) is None
        predict(server, 1)
        eventually(lambda: estimate(server) is not None)
        assert "WARNING" not in server.output
    with running(*command, "--no-state") as server:
        predict(server, 1)
        assert estimate(server) is None

    service.write_text(SERVICE.replace("0.001", "0.002"))
    with running(*command) as server:
        predict(server, 1)
        assert estimate(server) is None
