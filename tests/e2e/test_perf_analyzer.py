"""NVIDIA's perf_analyzer, which measures Triton servers, against services of ours."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.e2e.server import ROOT, SERVICES, Server, serving

pytestmark = pytest.mark.slow

COMMAND = str(ROOT / "scripts/perf-analyzer")
# The first run installs it.
INSTALL_S = 300
BOUND_S = 60
# perf_analyzer stops at the first request that is refused, and a busy machine may miss any goal.
PATIENT = ("--mb-max-latency", "30000")
# Short windows. How much they differ says something of this machine, nothing of the server.
QUICKLY = ("--measurement-interval", "300", "--stability-percentage", "1000")


@pytest.fixture(scope="module", autouse=True)
def program() -> None:
    """Skip where it cannot be had."""
    tried = subprocess.run(
        [COMMAND, "--version"], capture_output=True, text=True, timeout=INSTALL_S, check=False
    )
    if tried.returncode:
        pytest.skip(f"perf_analyzer cannot be installed: {tried.stderr.strip()}")


@pytest.fixture(scope="module")
def digits() -> Iterator[Server]:
    """The example, trained."""
    example = ROOT / "examples/digits"
    subprocess.run([sys.executable, str(example / "train.py")], check=True, capture_output=True)
    with serving(f"{example / 'service.py'}:Digits", *PATIENT) as server:
        yield server


def measure(server: Server, model: str, *arguments: str) -> str:
    """What it prints about a model, once it has ended without complaint."""
    address = server.base.removeprefix("http://")
    command = [COMMAND, "-m", model, "-i", "http", "-u", address, *QUICKLY, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=BOUND_S, check=False)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    return done.stdout


def loads_of_table(output: str, load: str) -> list[float]:
    """The loads in the table at the end; each got answers."""
    _, table = output.split("Inferences/Second vs. Client Average Batch Latency\n")
    found = re.findall(rf"{load}: ([\d.]+), throughput: ([\d.]+) infer/sec, latency \d+ usec", table)
    assert all(float(throughput) > 0 for _, throughput in found)
    return [float(at) for at, _ in found]


def server_counts(output: str) -> tuple[int, int, int]:
    """The rows, batches and requests that the server's statistics counted."""
    counted = [
        re.search(rf"{what} count: (\d+)", output)
        for what in ("Inference", "Execution", "Successful request")
    ]
    rows, batches, requests = (int(found[1]) for found in counted if found)
    return rows, batches, requests


@pytest.mark.parametrize("concurrency", [1, 32, 256])
def test_it_measures_callers_that_wait_for_their_answers(digits: Server, concurrency: int) -> None:
    """Every request is a row; with many callers a batch has many."""
    output = measure(digits, "digits", "--concurrency-range", str(concurrency))

    assert loads_of_table(output, "Concurrency") == [concurrency]
    rows, batches, requests = server_counts(output)
    assert rows == requests
    assert batches < rows or concurrency == 1


def test_it_measures_requests_of_several_rows(digits: Server) -> None:
    output = measure(digits, "digits", "-b", "4")

    assert loads_of_table(output, "Concurrency") == [1]
    rows, _, requests = server_counts(output)
    assert rows == 4 * requests


def test_it_measures_rates(digits: Server) -> None:
    output = measure(digits, "digits.predict_proba", "--request-rate-range", "20:40:20")

    assert loads_of_table(output, "Request Rate") == [20, 40]


def test_it_measures_rows_of_a_shape_that_it_is_given() -> None:
    with serving(f"{SERVICES / 'models.py'}:Models") as server:
        output = measure(server, "models.sums", "--shape", "input-0:5", "-b", "2")

    assert loads_of_table(output, "Concurrency") == [1]
