"""gRPC through nginx, with the file in deploy/."""

from __future__ import annotations

import asyncio
import queue
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
import tritonclient.grpc as triton
import tritonclient.grpc.aio as triton_aio

from tests.e2e.clients.test_grpc import code, floats, is_serving
from tests.e2e.clients.test_protocols import DOUBLED, MODELS, ROWS
from tests.e2e.server import PROBE, ROOT, eventually, serving
from tests.loops import HANG_S
from uncork_loadtests.servers import reserved_port

NGINX = shutil.which("nginx") or shutil.which("/usr/sbin/nginx")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(NGINX is None, reason="nginx is not installed: Debian's nginx-light"),
]

_TEMPORARY = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")


@contextmanager
def nginx(folder: Path, behind: str) -> Iterator[str]:
    """Run nginx with the file for gRPC, in front of an address; yields its own address."""
    with reserved_port() as port:
        yield from _nginx(folder, behind, f"127.0.0.1:{port}")


def _nginx(folder: Path, behind: str, own: str) -> Iterator[str]:
    site = (ROOT / "deploy/nginx/uncork-grpc.conf").read_text()
    for old, new in (("127.0.0.1:8001", behind), ("listen 8081", f"listen {own}")):
        assert site.count(old) == 1
        site = site.replace(old, new)
    (folder / "site.conf").write_text(site)
    paths = "\n".join(f"{name}_temp_path {folder / name};" for name in _TEMPORARY)
    (folder / "nginx.conf").write_text(
        f"daemon off; pid {folder / 'pid'}; error_log {folder / 'errors'};\n"
        "events { worker_connections 4096; }\n"
        f"http {{ access_log off;\n{paths}\ninclude {folder / 'site.conf'};\n}}\n"
    )
    assert NGINX is not None
    command = [NGINX, "-e", str(folder / "errors"), "-c", str(folder / "nginx.conf")]
    with subprocess.Popen(command) as process:
        try:
            with grpc.insecure_channel(own) as channel:
                grpc.channel_ready_future(channel).result(timeout=HANG_S)
            yield own
        finally:
            process.terminate()


def test_calls_and_streams_go_through_nginx(tmp_path: Path) -> None:
    """Calls at the same time share batches, though each has a connection of nginx."""

    async def ask(address: str, times: int) -> list[Any]:
        async with triton_aio.InferenceServerClient(address) as one:
            calls = [one.infer("models", [floats([ROWS[at % len(ROWS)]])]) for at in range(times)]
            return await asyncio.gather(*calls)

    with (
        serving(MODELS, "--grpc-port", "0", "--mb-max-latency", "30000") as server,
        nginx(tmp_path, server.grpc) as address,
        triton.InferenceServerClient(address) as client,
    ):
        results = asyncio.run(ask(address, 1500))
        answers = [result.as_numpy("output-0")[0].tolist() for result in results]
        assert answers == [DOUBLED[at % len(ROWS)] for at in range(1500)]
        assert server.metric("uncork_batch_rows_count", api="predict") < 300

        pieces: queue.Queue[tuple[Any, Any]] = queue.Queue()
        client.start_stream(lambda result, error: pieces.put((result, error)))
        for number in range(100):
            client.async_stream_infer("models", [floats(ROWS[:1])], request_id=str(number))
        found = [pieces.get(timeout=HANG_S)[0] for _ in range(100)]
        client.stop_stream()
        assert [int(result.get_response().id) for result in found] == list(range(100))

        with pytest.raises(triton.InferenceServerException, match="unknown model") as caught:
            client.infer("nothing", [floats(ROWS[:1])])
        assert code(caught.value) == "NOT_FOUND"
        with grpc.insecure_channel(address) as channel:
            assert is_serving(channel, "")


def test_deadlines_reach_the_server_and_a_server_that_is_gone_is_unavailable(tmp_path: Path) -> None:
    seconds = triton.InferInput("seconds", [1], "FP64")
    with (
        serving(PROBE, "--grpc-port", "0") as server,
        nginx(tmp_path, server.grpc) as address,
        triton.InferenceServerClient(address) as client,
    ):
        seconds.set_data_from_numpy(np.array([2.0]))
        with pytest.raises(triton.InferenceServerException) as caught:
            client.infer("probe.sleep", [seconds], client_timeout=0.3)
        assert code(caught.value) == "DEADLINE_EXCEEDED"
        eventually(lambda: server.metric("uncork_requests_total", api="sleep", protocol="grpc") == 1)
        server.terminate()
        assert server.exit_code() == 0
        with pytest.raises(triton.InferenceServerException) as caught:
            client.infer("probe.sleep", [seconds])
        assert code(caught.value) == "UNAVAILABLE"
