"""Frames of samples, and the options and reports of locust. The process itself is tested end to end."""

from __future__ import annotations

import io
import json
import math
from argparse import Namespace
from pathlib import Path
from typing import Any

import configargparse
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.loadtests.generator.test_samples import samples
from uncork_loadtests.generator.process import Frame, encode, read_frame, samples_of
from uncork_loadtests.generator.samples import LOST, UNANSWERED
from uncork_loadtests.locust.options import (
    add_options,
    is_open,
    payload_of,
    plan_of,
    report,
)

HOST = "http://127.0.0.1:3000/"


def options(*arguments: str) -> Namespace:
    parser = configargparse.ArgumentParser()
    add_options(parser)
    parsed: Namespace = parser.parse_args(arguments)
    return parsed


@given(st.lists(st.binary(max_size=200), min_size=1, max_size=5), st.integers(0, 3))
def test_frames_come_out_as_they_went_in(bodies: list[bytes], cut: int) -> None:
    """After the last, or after one that is cut off, the stream has failed."""
    frames = [Frame(samples=body) for body in bodies]
    whole = b"".join(map(encode, frames))
    stream = io.BytesIO(whole[: len(whole) - cut])
    intact = frames if not cut else frames[:-1]

    assert [read_frame(stream.read) for _ in intact] == intact
    assert read_frame(stream.read) == Frame(failed="a load generator exited early")


def test_samples_come_out_as_they_went_in() -> None:
    both = samples({}, {"status": 503})

    assert samples_of(Frame(samples=both.tobytes())).tolist() == both.tolist()
    assert not len(samples_of(Frame()))


@pytest.mark.parametrize(
    ("sample", "told"),
    [
        ({"status": 200, "latency_ms": 5.0, "wrong": False}, (5.0, "")),
        ({"status": 200, "latency_ms": 5.0, "wrong": True}, (5.0, "wrong response")),
        ({"status": 503, "latency_ms": 5.0, "wrong": False}, (5.0, "status 503")),
        ({"status": LOST, "latency_ms": math.nan, "wrong": False}, (None, "connection lost")),
        ({"status": UNANSWERED, "latency_ms": math.nan, "wrong": False}, (None, "no response")),
    ],
)
def test_what_locust_is_told(sample: dict[str, Any], told: tuple[float | None, str]) -> None:
    assert report(**sample) == told


def test_options_make_a_plan() -> None:
    arguments = ["--rate", "50", "--path", "/add", "--shape", "2", "--generators", "2", "--seed", "7"]
    plan = plan_of(options(*arguments), host=HOST, locusts=3)

    assert plan.url == "http://127.0.0.1:3000/add"
    assert (plan.rate, plan.processes, plan.seed, plan.clients) == (50, 6, 7, None)
    row = json.loads(plan.payload.bodies[0])
    assert len(row) == 2
    assert all(0 < number < 1 for number in row)


def test_options_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UNCORK_RATE", "9")
    monkeypatch.setenv("UNCORK_THINK_MS", "3")

    assert (options().rate, options().think_ms) == (9, 3)
    assert options("--rate", "5").rate == 5
    assert is_open(options())


def test_files_are_sent_as_they_are(tmp_path: Path) -> None:
    bodies, answers = tmp_path / "bodies", tmp_path / "answers"
    bodies.write_text("[1]\n[2]\n")
    answers.write_text("1\n2\n")
    payload = payload_of(options("--lines", str(bodies), "--expected", str(answers)))

    assert (payload.bodies, payload.expected) == ((b"[1]", b"[2]"), (b"1", b"2"))
    assert not is_open(options())
    assert is_open(options("--arrivals", "replay:x.csv"))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--shape", "2,x"], "--shape takes sizes"),
        (["--rows", "0"], "--rows must be at least 1, got 0"),
        (["--expected", "a"], "--expected requires --data or --lines"),
        (["--data", "a", "--lines", "b"], "--data and --lines cannot be combined"),
        (["--data", "nowhere"], "nowhere: No such file"),
        (["--arrivals", "replay:nowhere"], "--arrivals: .*nowhere"),
        (["--seconds", "0"], "seconds must be above 0"),
    ],
)
def test_wrong_options_are_told(arguments: list[str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        plan_of(options("--rate", "5", *arguments), host=HOST)
    with pytest.raises(ValueError, match="url must look like http"):
        plan_of(options("--rate", "5"), host=None)
