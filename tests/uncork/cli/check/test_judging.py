"""Each finding, from figures in which one thing is wrong."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from uncork.cli.check.figures import ApiFigures, Failure, Figures, Plan, Times
from uncork.cli.check.judging import judge
from uncork_loadtests.tuning.batch_times import SizeTime, fit
from uncork_workers.wire.schema import ApiSettings

MIB = 2**20
GROWING: dict[str, Any] = {"memory_per_row_bytes": MIB}


def times(intercept_ms: float = 10, slope_ms: float = 0.1, *, largest: int = 1024, **more: Any) -> Times:
    """Batches that take so long, measured up to a size."""
    rows = [1 << power for power in range(largest.bit_length())]
    sizes = tuple(
        SizeTime(rows=n, median_ms=took, times_ms=(took,) * 3)
        for n in rows
        for took in [intercept_ms + slope_ms * n]
    )
    return Times(sizes=sizes, line=fit(sizes), **more)


def found(
    *, seen: Times | None = None, plan: dict[str, Any] | None = None, api: dict[str, Any] | None = None,
    **settings: Any,
) -> list[tuple[str, str, str]]:  # fmt: skip
    """Severity, kind and advice of what is found."""
    figures = ApiFigures(
        name="predict",
        settings=ApiSettings(**settings),
        times=times() if seen is None else seen,
        **(api or {}),
    )
    judged = judge({"": Figures(service="S", plan=Plan(**{"cores": 4, **(plan or {})}), apis=(figures,))})
    return [(one.severity, one.code, one.advice) for one in judged.all]


def test_nothing_is_wrong_with_what_is_right() -> None:
    plan = {
        "workers": 2, "worker_bytes": 100 * MIB, "free_bytes": 4096 * MIB, "threads": 2,
        "max_worker_memory_bytes": 500 * MIB, "client_timeout_ms": 1000, "has_keys": True,
    }  # fmt: skip
    seen = times(row_bytes=100, memory_per_row_bytes=1000.0)

    assert found(seen=seen, plan=plan) == []


SLOW = times(400, 1, largest=64)
CASES: dict[str, tuple[dict[str, Any], str, str, str]] = {
    "goal below a row": ({"seen": SLOW}, "error", "goal-below-row", "set mb_max_latency to 1203,"),
    "goal below a full batch": (
        {"seen": times(10, 1)}, "note", "goal-below-batch", "set mb_max_batch_size to 290",
    ),
    "goal just below a full batch, above the line": (
        {"seen": times(), "mb_max_latency": 110, "mb_max_batch_size": 1024},
        "note", "goal-below-batch", "set mb_max_batch_size to 999",
    ),
    "goal below a full batch that the policy makes": (
        {"seen": times(10, 1), "policy": "fixed:5"},
        "warning", "goal-below-batch", "set mb_max_batch_size to 290",
    ),
    "timeout below the goal": ({"timeout": 0.2}, "error", "timeout-below-goal", "set timeout to 1.5 s"),
    "timeout below a batch": (
        {"seen": times(10, 1), "timeout": 0.5, "policy": "fixed:5"},
        "warning", "timeout-below-batch", "set timeout to 4 s, or mb_max_batch_size to 490",
    ),
    "no end within the timeout": (
        {"api": {"timed_out": True}}, "error", "row-beyond-timeout", "raise timeout",
    ),
    "a handler that fails on its own example": (
        {"api": {"failure": Failure(rows=1, says="no"), "row_is_made_up": False}},
        "error", "handler-fails", "fix the handler, or set a working example",
    ),
    "a handler that fails on a row that was made up": (
        {"api": {"failure": Failure(rows=1, says="no")}},
        "error", "handler-fails", "fix the handler; if clients never send such a row,",
    ),
    "a handler that fails on several rows": (
        {"api": {"failure": Failure(rows=64, says="no")}},
        "error", "handler-fails", "fix the handler: it receives all rows of a batch at once",
    ),
    "no example": ({"api": {"unmeasured": "none"}}, "note", "not-measured", "set a working example"),
    "impatient clients": (
        {"plan": {"client_timeout_ms": 100}}, "error", "client-below-goal", "set mb_max_latency below 100",
    ),
    "sizes beyond the cap": (
        {"mb_max_batch_size": 32, "allowed_batch_sizes": (16, 32, 64)},
        "warning", "sizes-beyond-cap", "raise mb_max_batch_size to 64",
    ),
    "lengths beyond the cap": (
        {"cost": "n", "mb_max_batch_size": 300, "allowed_lengths": (128, 512)},
        "warning", "lengths-beyond-cap", "set mb_max_batch_size to 512 times the number of such rows",
    ),
    "a row above the bytes of a batch": (
        {"seen": times(row_bytes=600), "mb_max_batch_bytes": 1000, "plan": {"max_body_bytes": 1000}},
        "warning", "row-above-batch-bytes", "set mb_max_batch_bytes to 600000",
    ),
    "a body above the bytes of a batch": (
        {"mb_max_batch_bytes": 1000}, "note", "body-above-batch-bytes", "larger requests run alone",
    ),
    "a queue below a batch": (
        {"plan": {"max_queue_rows": 999}}, "warning", "queue-below-batch", "set --max-queue-rows to 20000",
    ),
    "a queue below the bytes of a batch": (
        {"plan": {"max_queue_bytes": 999}}, "warning", "queue-below-batch", "raise --max-queue-bytes",
    ),
    "a stop that does not wait": (
        {"plan": {"drain_timeout_s": 0.1}}, "warning", "drain-below-goal", "set --drain-timeout to 1",
    ),
    "policy none where batches gain": (
        {"policy": "none"}, "warning", "policy-none", "remove the setting",
    ),
    "batches that gain nothing": (
        {"seen": times(0.1, 1, largest=128), "mb_max_batch_size": 100},
        "note", "little-gain", "process all rows at once in the handler",
    ),
    "more workers than cores": (
        {"plan": {"workers": 5}}, "warning", "workers-above-cores", "set --workers to 4",
    ),
    "more threads than cores": (
        {"plan": {"workers": 2, "threads": 4}}, "warning", "threads-above-cores", "unset OMP_NUM_THREADS",
    ),
    "more workers than GPUs": (
        {"plan": {"workers": 3, "gpus": ("0", "1")}}, "warning", "workers-above-gpus", "set --workers to 2",
    ),
    "more GPUs than workers": (
        {"plan": {"workers": 1, "gpus": ("0", "1")}}, "warning", "gpus-unused", "set --workers to 2",
    ),
    "workers beyond the memory": (
        {"plan": {"workers": 3, "worker_bytes": 400 * MIB, "free_bytes": 1000 * MIB}},
        "error", "workers-above-memory", "set --workers to 2",
    ),
    "a worker above its limit": (
        {"plan": {"worker_bytes": 400 * MIB, "max_worker_memory_bytes": 300 * MIB}},
        "error", "worker-above-limit", "set --max-worker-memory above 800 MiB",
    ),
    "a batch beyond the memory": (
        {"seen": times(**GROWING), "plan": {"worker_bytes": 100 * MIB, "free_bytes": 600 * MIB}},
        "error", "cap-above-memory", "set mb_max_batch_size to 400",
    ),
    "a batch above the limit of a worker": (
        {
            "seen": times(**GROWING),
            "plan": {"worker_bytes": 100 * MIB, "max_worker_memory_bytes": 200 * MIB},
        },
        "warning", "cap-above-memory", "set mb_max_batch_size to 80",
    ),
    "more connections than files": (
        {"plan": {"max_connections": 925, "possible_connections": 924}},
        "warning", "connections-above-files", "set --max-connections to 924",
    ),
    "keys in the clear": (
        {"plan": {"has_keys": True, "host": "0.0.0.0"}}, "warning", "keys-without-tls", "set --tls-cert",
    ),
    "operators' port for all": (
        {"plan": {"admin_host": "0.0.0.0"}}, "warning", "admin-is-public", "set --admin-host to 127.0.0.1",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_what_is_wrong_is_found(case: str) -> None:
    """That, and nothing else; the advice has the number to set."""
    given, severity, code, advice = CASES[case]

    judged = found(**given)
    if code == "timeout-below-batch":  # which is never alone, as goals are below timeouts
        judged = [one for one in judged if one[1] != "goal-below-batch"]
    [(said_severity, said_code, said_advice)] = judged

    assert (said_severity, said_code) == (severity, code)
    assert advice in said_advice


@pytest.mark.parametrize(
    "given",
    [
        {"plan": {"has_keys": True, "has_tls": True, "host": "0.0.0.0"}},
        {"plan": {"has_keys": True, "host": "localhost"}},
        {"plan": {"admin_host": "127.0.0.1"}},
        {"plan": {"workers": 9, "cores": 2, "gpus": tuple("012345678")}},
        {"mb_max_batch_size": 20, "allowed_batch_sizes": (16, 64)},
        {"cost": "n", "mb_max_batch_size": 32, "allowed_batch_sizes": (16, 32, 64)},
        {"cost": "n", "mb_max_batch_size": 512, "allowed_lengths": (128, 512)},
        {"policy": "none", "seen": times(0.1, 1)},
        {"policy": "none", "api": {"streams": True}, "seen": times(400, 1, largest=1)},
        {"cost": "bytes", "plan": {"max_queue_rows": 10}},
    ],
)
def test_what_only_looks_wrong_is_not_found(given: dict[str, Any]) -> None:
    assert [one for one in found(**given) if one[1] != "goal-below-row"] == []


def test_a_model_that_pads_is_told() -> None:
    sizes = tuple(
        SizeTime(rows=n, median_ms=took, times_ms=(took,) * 3)
        for n, took in ((1, 5), (2, 5), (4, 5), (5, 9), (8, 9), (9, 17), (16, 17))
    )
    codes = [code for _, code, _ in found(seen=Times(sizes=sizes, line=fit(sizes)), mb_max_batch_size=16)]

    assert set(codes) == {"step"}
    with_cost = found(seen=Times(sizes=sizes, line=fit(sizes)), mb_max_batch_size=16, cost="bytes")
    assert with_cost == []


def test_the_worst_comes_first() -> None:
    """Errors, warnings, notes; findings of all apis and of each."""
    judged = found(timeout=0.2, mb_max_batch_bytes=1000, plan={"workers": 5, "has_keys": True, "host": "::"})

    assert [severity for severity, _, _ in judged] == ["error", "warning", "warning", "note"]


def together(**plans: dict[str, Any]) -> list[tuple[str, str, str, str]]:
    """Severity, kind, fault and advice of what is found about services together, given their plans."""
    machine = {"cores": 4, "free_bytes": 1000 * MIB, "worker_bytes": 100 * MIB}
    services = {
        name: Figures(service="S", plan=Plan(**{**machine, **plan}), apis=()) for name, plan in plans.items()
    }
    verdict = judge(services)
    assert not any(verdict.services.values())
    return [(one.severity, one.code, one.wrong, one.advice) for one in verdict.together]


def test_services_that_fit_together() -> None:
    of_gpus = {"workers": 2, "gpus": ("0", "1")}
    assert together(a={"workers": 2}, b={"workers": 2}) == []
    assert together(a={"workers": 4}, b=of_gpus, c={"workers": 1, "gpus": ("2",)}) == []


def test_the_workers_of_all_services_share_the_cores() -> None:
    """Those with GPUs of their own do not count."""
    assert together(a={"workers": 3}, b={"workers": 2}, c={"workers": 1, "gpus": ("0",)}) == [
        (
            "warning",
            "workers-above-cores",
            "5 workers (a: 3, b: 2) share 4 cores, and the gateway needs one too",
            "lower the workers of the services to 4 in total, unless handlers mostly wait for I/O",
        )
    ]


def test_threads_of_all_services_share_the_cores() -> None:
    """A worker without a limit has at least one."""
    assert together(a={"workers": 2, "threads": 1}, b={"workers": 2}) == []
    assert together(a={"workers": 1, "threads": 3}, b={"workers": 2}) == [
        (
            "warning",
            "threads-above-cores",
            "OMP_NUM_THREADS=3 gives 3 workers 5 threads in total, on 4 cores",
            "unset OMP_NUM_THREADS and similar variables: each worker then gets its share of the cores",
        )
    ]


def test_the_workers_of_all_services_share_the_memory() -> None:
    assert together(
        a={"workers": 2, "worker_bytes": 400 * MIB}, b={"workers": 1, "worker_bytes": 300 * MIB}
    ) == [
        (
            "error",
            "workers-above-memory",
            "3 workers (a: 2 of 400 MiB, b: 1 of 300 MiB) do not fit into the 1000 MiB of free memory",
            "lower the workers of some services, or serve some on another machine",
        )
    ]


def test_batches_have_the_memory_that_other_services_leave() -> None:
    """A full batch fits alone, but not beside the workers of the other service."""
    full = ApiFigures(
        name="predict", settings=ApiSettings(), times=times(largest=1024, memory_per_row_bytes=0.7 * MIB)
    )
    mine = Plan(cores=4, free_bytes=1000 * MIB, worker_bytes=100 * MIB)
    alone = {"a": Figures(service="A", plan=mine, apis=(full,))}
    other = Figures(service="B", plan=replace(mine, worker_bytes=400 * MIB), apis=())
    assert judge(alone).all == []
    [found] = judge({**alone, "b": other}).services["a"]
    assert (found.severity, found.code, found.api) == ("error", "cap-above-memory", "predict")
    assert "but the free memory per worker is 600 MiB" in found.wrong


def test_services_on_one_gpu_are_told() -> None:
    """GPUs without a worker do not count."""
    found = together(
        a={"workers": 1, "gpus": ("0",)},
        b={"workers": 2, "gpus": ("0", "1")},
        c={"workers": 1, "gpus": ("1",)},
    )
    assert [(severity, kind, wrong) for severity, kind, wrong, _ in found] == [
        ("warning", "gpu-shared", "GPU 0 has workers of a and b"),
        ("warning", "gpu-shared", "GPU 1 has workers of b and c"),
    ]


def test_listeners_are_judged_once() -> None:
    public = {"workers": 1, "host": "0.0.0.0", "has_keys": True}
    assert [kind for _, kind, _, _ in together(a=public, b=public)] == ["keys-without-tls"]
