"""A service for tests of ``uncork.testing``."""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from tests.loops import HANG_S
from uncork import Service, api
from uncork.adapters import Json, NdArray
from uncork.testing import Client, client


class Digits(Service):
    set_up = 0
    torn_down = 0

    def setup(self) -> None:
        type(self).set_up += 1
        self.thread = threading.current_thread()

    def teardown(self) -> None:
        type(self).torn_down += 1

    @api(input=NdArray(dtype="float32", shape=(2,)), mb_max_batch_size=100)
    def predict(self, rows: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        assert threading.current_thread() is self.thread
        sums: np.ndarray[Any, Any] = rows.sum(axis=1)
        return sums

    @api(input=Json())
    def echo(self, items: list[Any]) -> list[Any]:
        """Each item, unless there is one among them that must fail."""
        for item in items:
            if item == "raise":
                raise KeyError("the culprit")
            if item == "exit":
                sys.exit("left")
            if item == "stop":
                raise StopIteration
            if item == "interrupt":
                raise KeyboardInterrupt("as in a process that is killed")
        return [] if "short" in items else items

    @api(input=Json(), timeout=0.05, mb_max_latency=60_000)
    def wait(self, items: list[Any]) -> list[Any]:
        """Wait until the test lets go."""
        for item in items:
            assert gates[item].wait(HANG_S)
        return items

    @api(input=Json(), policy="fixed:20000:8", mb_max_latency=60_000)
    def held(self, items: list[Any]) -> list[Any]:
        """Held until there are eight; how many there are, for each."""
        return [len(items)] * len(items)


def answered(api: str, count: int) -> str:
    """The line of the metrics after as many good answers."""
    labels = f'api="{api}",protocol="http",service="digits",status="200"'
    return f"uncork_requests_total{{{labels}}} {count}.0"


ONE_IS_HELD = 'uncork_queue_rows{api="held",service="digits"} 1.0'
gates: dict[str, threading.Event] = {}


@pytest.fixture
def digits() -> Iterator[Client]:
    Digits.set_up = 0
    with client(Digits) as made:
        yield made


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    """Fail a test that leaves a worker's thread behind, or something in the loggers."""
    before = threading.enumerate()
    yield
    left = [thread for thread in threading.enumerate() if thread not in before]
    assert not [thread for thread in left if thread.name.startswith("uncork ")]
    assert not logging.getLogger("uncork.worker").filters
    assert not logging.getLogger("uncork.gateway").filters


def is_ready(c: Client) -> bool:
    return c.get("/readyz").status_code == 200
