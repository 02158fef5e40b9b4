"""NVIDIA's perf_analyzer, which measures Triton servers, against services of ours."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator

import pytest

from tests.e2e.examples.models import EXAMPLES, make_model
from tests.e2e.server import ROOT, SERVICES, Server, serving
from tests.loops import HANG_S

pytestmark = pytest.mark.long_run

COMMAND = str(ROOT / "scripts/bench"), "interop", "perf-analyzer"
# The first run installs it.
INSTALL_S = 300
# perf_analyzer stops at the first request that is refused, and a busy machine may miss any goal.
PATIENT = ("--mb-max-latency", "30000")
# Short windows. How much they differ says something of this machine, nothing of the server.
QUICKLY = ("--measurement-interval", "300", "--stability-percentage", "1000")
# A busy machine may answer one request in a window.
_FEW = "Pass contained only one request"


@pytest.fixture(scope="module", autouse=True)
def program() -> None:
    """Skip where it cannot be had."""
    tried = subprocess.run(
        [*COMMAND, "--version"], capture_output=True, text=True, timeout=INSTALL_S, check=False
    )
    if tried.returncode:
        pytest.skip(f"perf_analyzer cannot be installed: {tried.stderr.strip()}")


@pytest.fixture(scope="module")
def digits() -> Iterator[Server]:
    make_model("digits")
    with serving(f"{EXAMPLES / 'digits/service.py'}:Digits", *PATIENT, "--grpc-port", "0") as server:
        yield server


def measure(server: Server, model: str, *arguments: str, protocol: str = "http") -> str:
    """What it prints about a model, once it has ended without complaint."""
    address = server.grpc if protocol == "grpc" else server.base.removeprefix("http://")
    command = [*COMMAND, "-m", model, "-i", protocol, "-u", address, *QUICKLY, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=HANG_S, check=False)
    complaints = [line for line in done.stderr.splitlines() if _FEW not in line]
    assert (done.returncode, complaints) == (0, []), f"{complaints}\n{done.stdout}"
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


@pytest.mark.parametrize("protocol", ["http", "grpc"])
@pytest.mark.parametrize("concurrency", [1, 32, 256])
def test_it_measures_callers_that_wait_for_their_answers(
    digits: Server, concurrency: int, protocol: str
) -> None:
    """Every request is a row; with many callers a batch has many."""
    output = measure(digits, "digits", "--concurrency-range", str(concurrency), protocol=protocol)

    assert loads_of_table(output, "Concurrency") == [concurrency]
    rows, batches, requests = server_counts(output)
    assert rows == requests
    assert batches < rows or concurrency == 1


@pytest.mark.parametrize("options", [("--streaming",), ("-a",), ("--grpc-compression-algorithm", "gzip")])
def test_it_measures_streams_asynchronous_and_compressed_calls(
    digits: Server, options: tuple[str, ...]
) -> None:
    output = measure(digits, "digits", "--concurrency-range", "16", *options, protocol="grpc")

    assert loads_of_table(output, "Concurrency") == [16]
    rows, batches, requests = server_counts(output)
    assert rows == requests > batches


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_it_measures_requests_of_several_rows(digits: Server, protocol: str) -> None:
    output = measure(digits, "digits", "-b", "4", protocol=protocol)

    assert loads_of_table(output, "Concurrency") == [1]
    rows, _, requests = server_counts(output)
    assert rows == 4 * requests


def test_it_measures_an_api_that_streams() -> None:
    """Which is a decoupled model: there are three answers to each request."""
    with serving(f"{SERVICES / 'streams.py'}:Pieces", *PATIENT, "--grpc-port", "0") as server:
        output = measure(server, "pieces", "--streaming", "--concurrency-range", "2", protocol="grpc")

    assert "Detected decoupled model" in output
    assert loads_of_table(output, "Concurrency") == [2]
    requests, answers = (
        float(found[1])
        for name in ("  Throughput", "Response Throughput")
        if (found := re.search(rf"{name}: ([\d.]+) infer/sec", output))
    )
    assert answers / requests == pytest.approx(3, rel=0.1)
