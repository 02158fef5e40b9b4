"""What deploy/ has for `uncork serve`: the unit of systemd, nginx."""

from __future__ import annotations

import configparser
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.deploy.manifests import DEPLOY, read_options
from tests.loops import HANG_S
from uncork.server.servers import KEEP_ALIVE_S
from uncork_gateway.pages.models.triton import TritonPages

UNIT = DEPLOY / "systemd/uncork.service"


def unit() -> configparser.SectionProxy:
    """What the unit says of the service; of settings that may be there twice the last."""
    parser = configparser.RawConfigParser(
        strict=False, interpolation=None, delimiters="=", comment_prefixes="#"
    )
    parser.optionxform = str  # type: ignore[assignment, method-assign]  # names of systemd have capitals
    parser.read(UNIT)
    return parser["Service"]


def test_the_unit_waits_longer_than_the_server_drains() -> None:
    """Its command line is one that `uncork serve` takes."""
    service = unit()
    _, *arguments = shlex.split(service["ExecStart"])
    serve = read_options("serve", arguments)

    assert serve["drain_delay"] + serve["drain_timeout"] < int(service["TimeoutStopSec"])
    assert service["KillSignal"] == "SIGTERM"
    assert service["ExecReload"].endswith("-HUP $MAINPID")


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze")
def test_systemd_knows_all_of_the_unit(tmp_path: Path) -> None:
    """With a command that is there; it complains of settings that it does not know."""
    program = Path(sys.executable).with_name("uncork")
    there = tmp_path / UNIT.name
    there.write_text(re.sub(r"(?m)^ExecStart=\S+", f"ExecStart={program}", UNIT.read_text()))
    found = subprocess.run(
        ["systemd-analyze", "verify", str(there)], capture_output=True, text=True, timeout=HANG_S, check=False
    )

    # It looks at other units of this machine as well.
    assert [line for line in found.stderr.splitlines() if UNIT.name in line] == []
    assert found.returncode == 0, found.stderr


def test_nginx_closes_its_connections_first() -> None:
    """It would send a request into one that the server is closing. It takes bodies as large as the server."""
    text = (DEPLOY / "nginx/uncork.conf").read_text()
    [kept_s] = re.findall(r"keepalive_timeout (\d+)s;", text)
    [most_mib] = re.findall(r"client_max_body_size (\d+)m;", text)
    [port] = re.findall(r"server 127.0.0.1:(\d+);", text)
    serve = read_options("serve", ["serve", "service.py:Digits"])

    assert int(kept_s) < KEEP_ALIVE_S
    assert int(most_mib) * 2**20 == serve["max_body_bytes"]
    assert int(port) == serve["port"]


def test_nginx_hides_what_the_admin_port_has() -> None:
    """It hides nothing of a model that is named stats."""
    [hidden] = re.findall(r"location ~ (\S+) {", (DEPLOY / "nginx/uncork.conf").read_text())
    statistics = TritonPages(dict, list).statistics_routes()
    operating = ["/metrics", "/status", "/dashboard", "/dashboard/events"]
    operating += [route.path.format(model="m", version="1") for route in statistics]
    for_clients = ["/v2/models/m", "/v2/models/stats/infer", "/v2/models/stats/versions/1/infer"]

    assert [path for path in operating if not re.search(hidden, path)] == []
    assert [path for path in for_clients if re.search(hidden, path)] == []
    for_grpc = (DEPLOY / "nginx/uncork-grpc.conf").read_text()
    assert "location = /inference.GRPCInferenceService/ModelStatistics {\n        return 404;" in for_grpc
