"""Services on a GPU, as docs/guides/gpu.md describes them. Skipped where there is none."""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path

import httpx
import numpy as np
import pytest

from tests.e2e.server import HTTP, ROOT, SERVICES, Server, eventually, run_uncork, serving
from tests.e2e.workers.remote import idle

pytestmark = pytest.mark.skipif(
    find_spec("torch") is None or shutil.which("nvidia-smi") is None, reason="needs PyTorch and an NVIDIA GPU"
)

GPU = f"{SERVICES / 'gpu.py'}:Gpu"
ROWS = np.random.default_rng(0).normal(size=(4, 8)).tolist()
RECIPES = ROOT / "docs/guides/recipes.md"


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """One worker on the first GPU."""
    with serving(GPU, "--gpus", "1") as running:
        yield running


def test_a_worker_sees_the_gpu_that_it_was_assigned(server: Server) -> None:
    """It sees no other."""
    assert HTTP.post(f"{server.base}/where", json=0).json() == {"assigned": "0", "seen": 1}


def test_a_worker_gets_the_gpu_that_a_uuid_names() -> None:
    """Here by the first digits of its UUID."""
    listed = subprocess.run(["nvidia-smi", "--list-gpus"], capture_output=True, text=True, check=True).stdout
    match = re.search(r"GPU-[0-9a-f]{8}", listed)
    assert match is not None, listed
    with serving(GPU, "--gpus", f"{match[0]},") as server:
        assert HTTP.post(f"{server.base}/where", json=0).json() == {"assigned": match[0], "seen": 1}


@pytest.mark.skipif(find_spec("pynvml") is None, reason="needs the extra gpu")
def test_the_memory_of_the_model_is_in_the_metrics(server: Server) -> None:
    """Torch has a context there, so the memory is not all free."""
    eventually(lambda: server.metric("uncork_gpu_memory_used_bytes", gpu="0", worker="0") > 0)
    total = server.metric("uncork_gpu_memory_total_bytes", gpu="0", worker="0")
    assert server.metric("uncork_gpu_memory_used_bytes", gpu="0", worker="0") < total
    assert 0 <= server.metric("uncork_gpu_utilization_ratio", gpu="0", worker="0") <= 1


def test_captured_graphs_answer_as_the_model_does(server: Server) -> None:
    """Three rows run in the graph of four; the answers equal those of predict."""
    expected = [HTTP.post(f"{server.base}/predict", json=row).json() for row in ROWS]

    for rows in range(1, 5):
        replies = at_once(server, "/replay", ROWS[:rows])

        assert [reply.status_code for reply in replies] == [200] * rows
        np.testing.assert_allclose([reply.json() for reply in replies], expected[:rows], atol=1e-5)


def test_a_batch_that_does_not_fit_into_memory_runs_in_parts(server: Server) -> None:
    """The four need 1.2 times the memory, so they run in halves."""
    workers = server.workers()

    replies = at_once(server, "/fill", [0.3] * 4)

    assert [reply.status_code for reply in replies] == [200] * 4
    assert [reply.json() for reply in replies] == [2] * 4
    assert server.workers() == workers


def test_a_request_that_does_not_fit_alone_fails_alone(server: Server) -> None:
    """The other three are answered."""
    replies = at_once(server, "/fill", [0.1, 0.1, 1.5, 0.1])

    assert [reply.status_code for reply in replies] == [200, 200, 500, 200]
    assert "out of memory" in server.output.lower()


def test_neighbours_of_a_cuda_error_are_answered(server: Server) -> None:
    """The worker exits and is replaced; the request that ends three of them gets 502."""
    replies = at_once(server, "/look_up", [1, 2, 1000, 3])

    assert [reply.status_code for reply in replies] == [200, 200, 502, 200]
    assert [reply.json() for reply in replies if reply.status_code == 200] == [1, 2, 3]
    eventually(lambda: idle(server, 1))
    assert HTTP.post(f"{server.base}/predict", json=ROWS[0]).status_code == 200


def test_a_reload_loads_the_new_workers_beside_the_old(server: Server) -> None:
    """They share its GPU until the old ones have gone."""
    before = set(server.workers())
    server.process.send_signal(signal.SIGHUP)

    eventually(lambda: not before & set(server.workers()) and idle(server, 1))
    assert HTTP.post(f"{server.base}/where", json=0).json() == {"assigned": "0", "seen": 1}


@pytest.mark.parametrize("command", ["serve", "check"])
def test_a_gpu_that_is_missing_is_a_usage_error(command: str) -> None:
    """Before a worker is started."""
    result = run_uncork(command, GPU, "--gpus", "4321,")

    assert result.returncode == 2
    assert "--gpus 4321,: this machine has no GPU 4321, only 0" in result.stderr


def test_check_reports_workers_that_share_a_gpu() -> None:
    """It runs the handlers on the GPU."""
    result = run_uncork("check", GPU, "--gpus", "1", "--workers", "2")

    assert "workers share" in " ".join(result.stdout.split()), result.stdout + result.stderr


def test_the_recipe_answers(tmp_path: Path) -> None:
    """Its code as it is, with a model of its shape."""
    code = re.search(r"```python\n(.*?)```", RECIPES.read_text().partition("\n## PyTorch\n")[2], re.DOTALL)
    assert code is not None
    (tmp_path / "service.py").write_text(code[1].replace('"model.pt"', repr(str(tmp_path / "model.pt"))))
    save_model = "import sys, torch; torch.jit.script(torch.nn.Linear(768, 3)).save(sys.argv[1])"
    subprocess.run([sys.executable, "-c", save_model, str(tmp_path / "model.pt")], check=True)

    with serving(f"{tmp_path / 'service.py'}:Classifier", "--gpus", "1") as server:
        reply = HTTP.post(f"{server.base}/predict", json=[0.5] * 768)

    assert reply.status_code == 200
    assert len(reply.json()) == 3


def at_once(server: Server, path: str, bodies: Sequence[object]) -> list[httpx.Response]:
    """Send requests together; policies of the service hold them until all are there."""
    with ThreadPoolExecutor(len(bodies)) as pool:
        return list(pool.map(lambda body: HTTP.post(f"{server.base}{path}", json=body), bodies))
