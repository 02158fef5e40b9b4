"""The cores that worker processes may use, and the delays between their starts."""

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from uncork_workers.cores import usable_cores
from uncork_workers.supervision.launcher import backoff_s
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
    assert worker_environment(2, {})["OMP_NUM_THREADS"] == "4"


@pytest.mark.parametrize("added", [{}, {"OMP_NUM_THREADS": "3"}])
def test_all_libraries_get_the_threads_that_openmp_gets(
    monkeypatch: pytest.MonkeyPatch, added: dict[str, str]
) -> None:
    """With OMP_NUM_THREADS=1 alone, PyTorch would otherwise start threads for the share of the cores."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1,1")
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "2")
    monkeypatch.delenv("MKL_NUM_THREADS", raising=False)
    environment = worker_environment(2, added)

    assert environment["MKL_NUM_THREADS"] == added.get("OMP_NUM_THREADS", "1")
    assert environment["OPENBLAS_NUM_THREADS"] == "2"


def test_there_is_a_core_even_if_nobody_counts_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: None)

    assert usable_cores() == 1


def delay_s(failures: int) -> float:
    return backoff_s(failures, first_s=0.1, longest_s=10.0)


@given(st.integers(1, 10**9))
def test_waits_double_up_to_the_longest(failures: int) -> None:
    """Within the jitter of 25 %."""
    mean_s = min(10.0, 0.1 * 2 ** min(failures - 1, 20))
    assert 0.75 * mean_s <= delay_s(failures) <= 1.25 * mean_s


def test_workers_that_fail_together_do_not_all_try_together() -> None:
    assert len({delay_s(3) for _ in range(10)}) > 1
