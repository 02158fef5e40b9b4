"""The applications of scripts/bench fastapi, and its table."""

import subprocess
import sys

import httpx
import pytest

from benchmarks.fastapi import ENTRANTS, sheet_of
from benchmarks.gateway import digits_rows
from benchmarks.harness.paths import EXAMPLES
from benchmarks.harness.rounds import Round
from benchmarks.services import fastapi_apps


@pytest.fixture
def _trained() -> None:
    subprocess.run([sys.executable, EXAMPLES / "digits/train.py"], check=True)


@pytest.mark.slow
@pytest.mark.usefixtures("_trained")
async def test_all_applications_give_the_same_answers() -> None:
    bodies, answers = digits_rows()[:3], []
    for factory, path, _ in ENTRANTS.values():
        app = getattr(fastapi_apps, factory)()
        async with (
            app.router.lifespan_context(app),
            httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://app") as client,
        ):
            json = {"content-type": "application/json"}
            answers.append([(await client.post(path, content=body, headers=json)).text for body in bodies])
    assert answers == [["0", "1", "2"]] * 3


def a_round(per_s: float, void: str = "") -> Round:
    return Round(requests_per_second=per_s, p50=0.01, p99=1 / per_s, void=void)


def test_ratios_are_within_rounds_that_count() -> None:
    found = {
        "alone": [a_round(10), a_round(20), a_round(1)],
        "mount": [a_round(30), a_round(20), a_round(90, "the generator fell behind")],
    }
    assert sheet_of(found, clients=64).rows == [
        ["alone", "15", "1.00 (1.00 to 1.00)", "1.00"],
        ["mount", "25", "2.00 (1.00 to 3.00)", "0.67"],
    ]
