"""Clients of a Unix socket, and the health check of the image."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import httpx
import pytest
import trustme

from tests.e2e.server import PROBE, ROOT, serving
from tests.loops import HANG_S

pytestmark = pytest.mark.slow

KEY = "a-key-of-the-tests"


def test_clients_of_a_unix_socket_share_batches_keys_and_metrics(tmp_path: Path) -> None:
    """They need a key, too, but have no TLS."""
    trustme.CA().issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(tmp_path / "server.pem")
    (tmp_path / "keys").write_text(f"{KEY}\n")
    arguments = (
        *("--uds", str(tmp_path / "s"), "--tls-cert", str(tmp_path / "server.pem")),
        *("--api-key-file", str(tmp_path / "keys"), "--admin-port", "0"),
    )
    with serving(PROBE, *arguments) as server:
        assert f"UNIX {tmp_path / 's'}" in server.output
        transport = httpx.HTTPTransport(uds=str(tmp_path / "s"))
        with httpx.Client(transport=transport, base_url="http://here", timeout=HANG_S) as client:
            answers = [
                client.post("/recall", json=[1], headers={"x-api-key": key}) for key in (KEY, "no key")
            ]
            assert [answer.status_code for answer in answers] == [200, 401]
            assert client.get("/livez").status_code == 200
            large = client.post("/recall", content=b"[%b1]" % (b"1," * 500_000), headers={"x-api-key": KEY})
            assert large.status_code in (200, 400)
        assert server.metric("uncork_requests_total", status="200") >= 1
    assert server.exit_code() == 0
    assert not (tmp_path / "s").exists()


def test_the_health_check_of_the_image_with_tls(tmp_path: Path) -> None:
    """It requests LIVEZ_URL, with TLS and without."""
    certificate = tmp_path / "server.pem"
    trustme.CA().issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(certificate)
    [check] = re.findall(r"HEALTHCHECK .* CMD (\[.*\])", (ROOT / "deploy/Containerfile").read_text())
    _, *arguments = json.loads(check)

    def exit_code(url: str) -> int:
        environment = {**os.environ, "LIVEZ_URL": url}
        command = [sys.executable, *arguments]
        return subprocess.run(command, env=environment, capture_output=True, check=False).returncode

    with serving(PROBE, "--tls-cert", str(certificate), "--admin-port", "0") as server:
        [address] = re.findall(r"POST https(://[^/\s]+)/recall", server.output)
        codes = [exit_code(url) for url in (f"https{address}/livez", f"{server.base}/livez")]
        wrong = exit_code(f"http{address}/livez")

    assert codes == [0, 0]
    assert wrong != 0
