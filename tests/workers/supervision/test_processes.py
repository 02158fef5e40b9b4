"""The number of cores that this process may use."""

import os

import pytest

from uncork_workers.cores import usable_cores
from uncork_workers.supervision.processes import worker_environment


def test_only_the_cores_that_this_process_may_run_on_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """A container or taskset may leave it fewer than the machine has."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 3, 7}, raising=False)

    assert usable_cores() == 3


def test_systems_that_bind_no_process_to_cores_have_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)

    assert usable_cores() == 8
    assert worker_environment(2)["OMP_NUM_THREADS"] == "4"


def test_there_is_a_core_even_if_nobody_counts_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: None)

    assert usable_cores() == 1
