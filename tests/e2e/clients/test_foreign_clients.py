"""KServe's clients and ovmsclient, each in an environment of its own, against a service of ours."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator

import pytest

from tests.e2e.examples.models import EXAMPLES, make_model
from tests.e2e.server import ROOT, Server, serving

pytestmark = pytest.mark.long_run

# The first run installs the client.
_BOUND_S = 900


@pytest.fixture(scope="module")
def digits() -> Iterator[Server]:
    make_model("digits")
    with serving(f"{EXAMPLES / 'digits/service.py'}:Digits", "--grpc-port", "0") as server:
        yield server


def test_every_call_of_kserves_clients_is_answered(digits: Server) -> None:
    run("kserve", digits.base, "digits", digits.grpc)


def test_every_call_of_ovmsclient_is_answered(digits: Server) -> None:
    run("ovms", digits.grpc, "digits")


def run(client: str, *arguments: str) -> None:
    """Run a client, which fails if an answer is wrong; skip where it cannot be installed."""
    command = [str(ROOT / "scripts/bench"), "interop", client, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=_BOUND_S, check=False)
    if "pip cannot install" in done.stderr:
        pytest.skip(done.stderr.strip())
    assert done.returncode == 0, done.stdout + done.stderr
