"""Answers alone and in batches are compared on a real server."""

from __future__ import annotations

from pathlib import Path

import pytest

import benchmarks
from benchmarks.models.agreement import Agreement, check_agreement
from uncork_loadtests.servers import BenchError
from uncork_loadtests.targets import our_service

ECHO = f"{Path(benchmarks.__file__).parent / 'services' / 'echo.py'}:Echo"
BODIES = [b"[%d,0.5]" % number for number in range(6)]


def test_requests_that_share_a_batch_agree() -> None:
    with our_service(ECHO, options=["--policy", "fixed:200:6", "--mb-max-latency", "60000"]) as server:
        assert check_agreement(server, path="/echo", bodies=BODIES) == Agreement(
            requests=6, largest_batch=6, largest_difference=0.0
        )
        with pytest.raises(BenchError, match="all answers are equal"):
            check_agreement(server, path="/echo", bodies=BODIES[:1] * 2)
        with pytest.raises(BenchError, match="answers 400 to a single request"):
            check_agreement(server, path="/echo", bodies=[b"["])
