"""grpc-js, which has an HTTP/2 of its own, against a service of ours."""

from __future__ import annotations

import json
import shutil
import subprocess

import pytest

from tests.e2e.server import PROBE, ROOT, eventually, serving
from tests.loops import HANG_S

pytestmark = pytest.mark.skipif(
    not (shutil.which("node") and (ROOT / ".peers/grpc-js/.installed").exists()),
    reason="grpc-js is not installed: scripts/bench interop grpc-js installs it",
)

_OK, _CANCELLED, _DEADLINE_EXCEEDED, _NOT_FOUND = 0, 1, 4, 5


def test_unary_calls_streams_cancellation_and_deadlines() -> None:
    with serving(PROBE, "--grpc-port", "0") as server:
        command = [str(ROOT / "scripts/bench"), "interop", "grpc-js", server.grpc]
        done = subprocess.run(command, capture_output=True, text=True, timeout=HANG_S, check=False)
        assert done.returncode == 0, done.stderr
        found = json.loads(done.stdout)

        ids = [str(number) for number in range(50)]
        assert found["unary"] == [{"code": _OK, "id": each} for each in ids]
        assert found["streamed"] == [*ids, "error", "last"]
        assert found["unknown"]["code"] == _NOT_FOUND
        assert found["cancelled"]["code"] == _CANCELLED
        assert found["late"]["code"] == _DEADLINE_EXCEEDED
        assert found["after"] == {"code": _OK, "id": "after"}
        eventually(lambda: server.metric("uncork_requests_total", protocol="grpc", status="499") >= 1)
