"""The actor that runs a worker on a node of Ray, without Ray."""

import os
import threading

import pytest

from tests.loops import HANG_S
from uncork_workers.ray import cluster, host
from uncork_workers.ray.host import Host


def test_what_a_worker_leaves_running_ends_before_its_end_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """The driver then kills the actor, and nothing on the node would end what ignores SIGTERM."""
    actor: Host
    was_told: list[bool] = []
    has_ended = threading.Event()
    monkeypatch.setattr(cluster, "node_id", lambda: "0123456789abcdef")
    monkeypatch.setattr(host, "end_group", lambda group: was_told.append(actor._exit_code.done()))
    monkeypatch.setattr(host, "_LINGERS_S", 0.0)
    monkeypatch.setattr(os, "_exit", lambda code: has_ended.set())
    actor = Host(["--help"], {}, "", b"")

    assert has_ended.wait(HANG_S)
    assert (actor._exit_code.result(), was_told) == (0, [False])
