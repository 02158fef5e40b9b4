"""What an installation without extras does; scripts/nightly runs this file in one."""

from __future__ import annotations

import re
from html import escape
from importlib.util import find_spec

import pytest

from tests.e2e.server import HTTP, PROBE, run_uncork, serving
from uncork.cli.app import COMMANDS
from uncork_workers.extras import install_command

EXTRAS = ("grpc", "hpack", "locust", "plotly", "scipy", "swagger_ui_bundle")

pytestmark = pytest.mark.skipif(any(map(find_spec, EXTRAS)), reason="needs an installation without extras")


def test_a_service_is_served_and_pages_say_how_to_install_them() -> None:
    install = escape(install_command("pages"), quote=False)
    with serving(PROBE) as server:
        assert HTTP.post(f"{server.base}/sleep", json=0).status_code == 200
        for path in ("/dashboard", "/docs"):
            page = HTTP.get(f"{server.base}{path}", headers={"accept": "text/html"})
            assert page.status_code == 501
            assert install in page.text
        assert install in HTTP.get(server.base, headers={"accept": "text/html"}).text


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help(command: str) -> None:
    assert run_uncork(command, "--help").returncode == 0


def test_what_needs_an_extra_says_so() -> None:
    tuned = run_uncork("tune", PROBE, "--goal-ms", "100")

    assert tuned.returncode == 2
    assert install_command("loadtest") in tuned.stderr

    served = run_uncork("serve", PROBE, "--port", "0", "--grpc-port", "0")

    assert served.returncode == 2
    install = re.escape(install_command("grpc"))
    assert re.search(rf"--grpc-port requires \w+; run {install}", served.stderr)

    proxied = run_uncork("proxy", "grpc://127.0.0.1:1", "--port", "0", "--grpc-port", "0")

    assert proxied.returncode == 2
    assert re.search(rf"a server of grpc:// requires \w+; run {install}", proxied.stderr)
