"""Each finding, from figures in which one thing is wrong."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from uncork.cli.check.figures import ApiFigures, Comparison, Failure, Figures, Plan, Times
from uncork.cli.check.judging import judge
from uncork_loadtests.tuning.batch_times import SizeTime, fit
from uncork_workers.wire.schema import ApiSettings

MIB = 2**20
GROWING: dict[str, Any] = {"memory_per_row_bytes": MIB}


def times(intercept_ms: float = 10, slope_ms: float = 0.1, *, largest: int = 1024, **more: Any) -> Times:
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
) -> list[tuple[str, str, dict[str, Any]]]:  # fmt: skip
    figures = ApiFigures(
        name="predict",
        settings=ApiSettings(**settings),
        times=times() if seen is None else seen,
        **(api or {}),
    )
    judged = judge({"": Figures(service="S", plan=Plan(**{"cores": 4, **(plan or {})}), apis=(figures,))})
    return [(one.severity, one.advice.code, one.advice.figures) for one in judged.all]


def test_nothing_is_wrong_with_what_is_right() -> None:
    plan = {
        "workers": 2, "worker_bytes": 100 * MIB, "free_bytes": 4096 * MIB, "threads": 2,
        "max_worker_memory_bytes": 500 * MIB, "client_timeout_ms": 1000, "has_keys": True,
    }  # fmt: skip
    seen = times(row_bytes=100, memory_per_row_bytes=1000.0)

    assert found(seen=seen, plan=plan) == []


LEAK = {"where": "the result", "expected": "1", "found": "2", "at": 2, "rows": 4, "tolerance": "none"}
SLOW = times(400, 1, largest=64)
CASES: dict[str, tuple[dict[str, Any], str, str, dict[str, Any]]] = {
    "goal below a row": ({"seen": SLOW}, "error", "goal-below-row", {"to": 1203, "needed_s": 0.401}),
    "goal below a full batch": (
        {"seen": times(10, 1)}, "note", "goal-below-batch", {"fitting": 290, "full_s": 1.01},
    ),
    "goal just below a full batch, above the line": (
        {"seen": times(), "mb_max_latency": 110, "mb_max_batch_size": 1024},
        "note", "goal-below-batch", {"fitting": 1000, "cap": 1024},
    ),
    "goal below a full batch that the policy makes": (
        {"seen": times(10, 1), "policy": "fixed:5"},
        "warning", "goal-below-batch", {"fitting": 290, "policy": "fixed:5"},
    ),
    "timeout below the goal": ({"timeout": 0.2}, "error", "timeout-below-goal", {"to": 1.5}),
    "timeout below a batch": (
        {"seen": times(10, 1), "timeout": 0.5, "policy": "fixed:5"},
        "warning", "timeout-below-batch", {"to": 4, "fitting": 490},
    ),
    "no end within the timeout": (
        {"api": {"timed_out": True}}, "error", "row-beyond-timeout", {"timeout_s": 60},
    ),
    "a handler that fails on its own example": (
        {"api": {"failure": Failure(rows=1, says="no"), "row_is_made_up": False}},
        "error", "handler-fails", {"rows": 1, "says": "no"},
    ),
    "a handler that fails on a row that was made up": (
        {"api": {"failure": Failure(rows=1, says="no")}},
        "error", "handler-fails", {"rows": 1, "says": "no"},
    ),
    "a handler that fails on several rows": (
        {"api": {"failure": Failure(rows=64, says="no")}},
        "error", "handler-fails", {"rows": 64, "says": "no"},
    ),
    "no example": ({"api": {"unmeasured": "none"}}, "note", "not-measured", {"why": "none"}),
    "rows that depend on each other": (
        {"api": {"comparison": Comparison(key="batch-leak", figures=LEAK, excess=50)}},
        "error", "batch-leak", {"at": 2, "where": "the result"},
    ),
    "rows that differ a little": (
        {"api": {"comparison": Comparison(key="batch-leak", figures=LEAK, excess=49)}},
        "warning", "batch-leak", {"at": 2},
    ),
    "rows that depend on each other, but run alone": (
        {"api": {"comparison": Comparison(key="batch-leak", figures=LEAK, excess=50)}, "policy": "none"},
        "note", "batch-leak", {"at": 2},
    ),
    "rows that cannot be judged": (
        {"api": {"comparison": Comparison(key="not-deterministic", figures=LEAK)}},
        "note", "not-deterministic", {"expected": "1"},
    ),
    "impatient clients": (
        {"plan": {"client_timeout_ms": 100}}, "error", "client-below-goal", {"client_s": 0.1, "to": 100},
    ),
    "sizes beyond the cap": (
        {"mb_max_batch_size": 32, "allowed_batch_sizes": (16, 32, 64)},
        "warning", "sizes-beyond-cap", {"sizes": "64", "to": 64},
    ),
    "lengths beyond the cap": (
        {"cost": "n", "mb_max_batch_size": 300, "allowed_lengths": (128, 512)},
        "warning", "lengths-beyond-cap", {"lengths": "512", "to": "512"},
    ),
    "a row above the bytes of a batch": (
        {"seen": times(row_bytes=600), "mb_max_batch_bytes": 1000, "plan": {"max_body_bytes": 1000}},
        "warning", "row-above-batch-bytes", {"row": 600, "to": 600_000},
    ),
    "a body above the bytes of a batch": (
        {"mb_max_batch_bytes": 1000}, "note", "body-above-batch-bytes", {"body": 64 * MIB, "most": 1000},
    ),
    "a queue below a batch": (
        {"plan": {"max_queue_rows": 999}}, "warning", "queue-below-batch", {"batch": 1000, "to": 20_000},
    ),
    "a queue below the bytes of a batch": (
        {"plan": {"max_queue_bytes": 999}}, "warning", "queue-below-batch", {"queue": 999, "unit": "byte"},
    ),
    "a stop that does not wait": (
        {"plan": {"drain_timeout_s": 0.1}}, "warning", "drain-below-goal", {"drain": 0.1, "to": 1},
    ),
    "policy none where batches gain": (
        {"policy": "none"}, "warning", "policy-none", {"rows": 1024, "gain": 92.014},
    ),
    "batches that gain nothing": (
        {"seen": times(0.1, 1, largest=128), "mb_max_batch_size": 100},
        "note", "little-gain", {"rows": 128, "gain": 1.099},
    ),
    "stages that could overlap": (
        {"seen": times(stages_s=(0.02, 0.03, 0.001))},
        "note", "stages", {"rows": 1024, "alone_s": 0.051, "gap_s": 0.03},
    ),
    "more workers than cores": (
        {"plan": {"workers": 5}}, "warning", "workers-above-cores", {"workers": 5, "to": 4},
    ),
    "more threads than cores": (
        {"plan": {"workers": 2, "threads": 4}}, "warning", "threads-above-cores", {"threads": 8},
    ),
    "more workers than GPUs": (
        {"plan": {"workers": 3, "gpus": ("0", "1")}}, "warning", "workers-above-gpus", {"gpus": 2},
    ),
    "more GPUs than workers": (
        {"plan": {"workers": 1, "gpus": ("0", "1")}}, "warning", "gpus-unused", {"workers": 1, "gpus": 2},
    ),
    "workers beyond the memory": (
        {"plan": {"workers": 3, "worker_bytes": 400 * MIB, "free_bytes": 1000 * MIB}},
        "error", "workers-above-memory", {"workers": 3, "to": 2},
    ),
    "a worker above its limit": (
        {"plan": {"worker_bytes": 400 * MIB, "max_worker_memory_bytes": 300 * MIB}},
        "error", "worker-above-limit", {"base": 400 * MIB, "to_bytes": 800 * MIB},
    ),
    "a batch beyond the memory": (
        {"seen": times(**GROWING), "plan": {"worker_bytes": 100 * MIB, "free_bytes": 600 * MIB}},
        "error", "cap-above-memory", {"room": 600 * MIB, "to": 400},
    ),
    "a batch that runs out of memory": (
        {"seen": times(largest=16, fits=16.0)},
        "warning", "memory-limit", {"fits": 16, "to": 16, "setting": "mb_max_batch_size"},
    ),
    "a batch above the limit of a worker": (
        {
            "seen": times(**GROWING),
            "plan": {"worker_bytes": 100 * MIB, "max_worker_memory_bytes": 200 * MIB},
        },
        "warning", "cap-above-memory", {"room": 200 * MIB, "to": 80},
    ),
    "more connections than files": (
        {"plan": {"max_connections": 925, "possible_connections": 924}},
        "warning", "connections-above-files", {"connections": 925, "possible": 924},
    ),
    "keys in the clear": (
        {"plan": {"has_keys": True, "host": "0.0.0.0"}}, "warning", "keys-without-tls", {"host": "0.0.0.0"},
    ),
    "operators' port for all": (
        {"plan": {"admin_host": "0.0.0.0"}}, "warning", "admin-is-public", {"host": "0.0.0.0"},
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_what_is_wrong_is_found(case: str) -> None:
    """That, and nothing else; the figures have the number to set."""
    given, severity, code, figures = CASES[case]

    judged = found(**given)
    if code == "timeout-below-batch":  # which is never alone, as goals are below timeouts
        judged = [one for one in judged if one[1] != "goal-below-batch"]
    [(said_severity, said_code, said)] = judged

    assert (said_severity, said_code) == (severity, code)
    assert {name: said[name] for name in figures} == {
        name: value if isinstance(value, str) else pytest.approx(value, rel=1e-3)
        for name, value in figures.items()
    }


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
        {"api": {"comparison": Comparison()}},
        {"policy": "none", "api": {"streams": True}, "seen": times(400, 1, largest=1)},
        {"cost": "bytes", "plan": {"max_queue_rows": 10}},
        {"seen": times(stages_s=(0.001, 0.03, 0.0))},
        {"seen": times(stages_s=(0.02, 0.03, 0.0)), "idempotent": False},
    ],
)
def test_what_only_looks_wrong_is_not_found(given: dict[str, Any]) -> None:
    assert [one for one in found(**given) if one[1] != "goal-below-row"] == []


@pytest.mark.parametrize(
    ("goal_ms", "slow_ms", "reserved", "expected"),
    [
        (50, 2000, (None, None), {"other": "slow", "other_s": 2.001, "goal_s": 0.05, "to": 4}),
        (50, 36, (None, None), {}),
        (50, 2000, (1, None), {}),
        (50, 2000, (None, 1), {}),
        (5, 2000, (None, None), {}),
    ],
)
def test_a_long_batch_of_another_api_leaves_no_time(
    goal_ms: int, slow_ms: int, reserved: tuple[int | None, int | None], expected: dict[str, Any]
) -> None:
    """Not with reserved workers, nor if the goal is out of reach anyway; the fast API takes 11 ms."""
    figures = neighbors(goal_ms, slow_ms, reserved)
    assert figures == ([] if not expected else [{**expected, "parts": "workers"}])


@pytest.mark.parametrize("concurrency", [(2, 1), (1, 2), (2, 2)])
def test_an_api_with_concurrency_waits_for_no_other(concurrency: tuple[int, int]) -> None:
    assert neighbors(50, 2000, concurrency=concurrency) == []


def neighbors(
    goal_ms: int,
    slow_ms: int,
    reserved: tuple[int | None, int | None] = (None, None),
    concurrency: tuple[int, int] = (1, 1),
) -> list[Mapping[str, Any]]:
    """Return the figures of findings about a fast API beside a slow one."""
    apis = [
        ApiFigures(
            name=name,
            settings=ApiSettings(mb_max_latency=goal, workers=own),
            times=times(took, 1, largest=1),
            concurrency=most,
        )
        for name, goal, took, own, most in (
            ("fast", goal_ms, 10, reserved[0], concurrency[0]),
            ("slow", 60_000, slow_ms, reserved[1], concurrency[1]),
        )
    ]
    judged = judge({"": Figures(service="S", plan=Plan(cores=8, workers=4), apis=tuple(apis))})
    return [one.advice.figures for one in judged.all if one.advice.code == "goal-below-neighbor"]


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


OF_GPUS = {"workers": 2, "gpus": ("0", "1")}
PUBLIC = {"workers": 1, "host": "0.0.0.0", "has_keys": True}
TOGETHER: list[tuple[list[dict[str, Any]], list[tuple[str, str, dict[str, Any]]]]] = [
    ([{"workers": 2}, {"workers": 2}], []),
    ([{"workers": 4}, OF_GPUS, {"workers": 1, "gpus": ("2",)}], []),
    # Those with GPUs of their own do not count.
    (
        [{"workers": 3}, {"workers": 2}, {"workers": 1, "gpus": ("0",)}],
        [("warning", "workers-above-cores", {"workers": 5, "shares": " (a: 3, b: 2)", "cores": 4, "to": 4})],
    ),
    # A worker without a limit has at least one thread.
    ([{"workers": 2, "threads": 1}, {"workers": 2}], []),
    (
        [{"workers": 1, "threads": 3}, {"workers": 2}],
        [("warning", "threads-above-cores", {"limits": "3", "workers": 3, "threads": 5, "cores": 4})],
    ),
    (
        [{"workers": 2, "worker_bytes": 400 * MIB}, {"workers": 1, "worker_bytes": 300 * MIB}],
        [
            (
                "error",
                "workers-above-memory",
                {"workers": 3, "shares": " (a: 2 of 400 MiB, b: 1 of 300 MiB)", "free": 1000 * MIB},
            )
        ],
    ),
    # GPUs without a worker do not count.
    (
        [{"workers": 1, "gpus": ("0",)}, OF_GPUS, {"workers": 1, "gpus": ("1",)}],
        [
            ("warning", "gpu-shared", {"gpu": "0", "services": "a and b"}),
            ("warning", "gpu-shared", {"gpu": "1", "services": "b and c"}),
        ],
    ),
    ([PUBLIC, PUBLIC], [("warning", "keys-without-tls", {"host": "0.0.0.0"})]),
]


@pytest.mark.parametrize(("plans", "expected"), TOGETHER)
def test_services_are_judged_together(
    plans: list[dict[str, Any]], expected: list[tuple[str, str, dict[str, Any]]]
) -> None:
    machine = {"cores": 4, "free_bytes": 1000 * MIB, "worker_bytes": 100 * MIB}
    verdict = judge(
        {
            name: Figures(service="S", plan=Plan(**{**machine, **plan}), apis=())
            for name, plan in zip("abc", plans, strict=False)
        }
    )

    assert not any(verdict.services.values())
    assert [(one.severity, one.advice.code, one.advice.figures) for one in verdict.together] == expected


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
    assert (found.severity, found.advice.code, found.api) == ("error", "cap-above-memory", "predict")
    assert found.advice.figures["room"] == 600 * MIB
