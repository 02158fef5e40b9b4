"""Each finding, from figures in which one thing is wrong."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.expected import check_texts
from uncork.cli.check.figures import ApiFigures, Comparison, Failure, Figures, Finding, Plan, Times
from uncork.cli.check.judging import judge
from uncork_dispatcher.advice_texts import TEMPLATES
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


def pads() -> Times:
    steps = ((1, 5), (2, 5), (4, 5), (5, 9), (8, 9), (9, 17), (16, 17))
    sizes = tuple(SizeTime(rows=n, median_ms=took, times_ms=(took,) * 3) for n, took in steps)
    return Times(sizes=sizes, line=fit(sizes))


LEAK = {"where": "the result", "expected": "1", "found": "2", "at": 2, "rows": 4, "tolerance": "none"}
LEAKING = Comparison(key="batch-leak", figures=LEAK, excess=50)
SLOW = times(400, 1, largest=64)
PADDING = pads()
CASES: dict[str, dict[str, Any]] = {
    "all right": {
        "seen": times(row_bytes=100, memory_per_row_bytes=1000.0),
        "plan": {
            "workers": 2,
            "worker_bytes": 100 * MIB,
            "free_bytes": 4096 * MIB,
            "threads": 2,
            "max_worker_memory_bytes": 500 * MIB,
            "client_timeout_ms": 1000,
            "has_keys": True,
        },
    },
    "goal below a row": {"seen": SLOW},
    "goal below a full batch": {"seen": times(10, 1)},
    "goal just below a full batch, above the line": {
        "seen": times(),
        "mb_max_latency": 110,
        "mb_max_batch_size": 1024,
    },
    "goal below a full batch that the policy makes": {"seen": times(10, 1), "policy": "fixed:5"},
    "timeout below the goal": {"timeout": 0.2},
    "timeout below a batch": {"seen": times(10, 1), "timeout": 0.5, "policy": "fixed:5"},
    "no end within the timeout": {"api": {"timed_out": True}},
    "a handler that fails on its own example": {
        "api": {"failure": Failure(rows=1, says="no"), "row_is_made_up": False}
    },
    "a handler that fails on a row that was made up": {"api": {"failure": Failure(rows=1, says="no")}},
    "a handler that fails on several rows": {"api": {"failure": Failure(rows=64, says="no")}},
    "no example": {"api": {"unmeasured": "none"}},
    "rows that depend on each other": {"api": {"comparison": LEAKING}},
    "rows that differ a little": {
        "api": {"comparison": Comparison(key="batch-leak", figures=LEAK, excess=49)}
    },
    "rows that depend on each other, but run alone": {"api": {"comparison": LEAKING}, "policy": "none"},
    "rows that cannot be judged": {"api": {"comparison": Comparison(key="not-deterministic", figures=LEAK)}},
    "impatient clients": {"plan": {"client_timeout_ms": 100}},
    "sizes beyond the cap": {"mb_max_batch_size": 32, "allowed_batch_sizes": (16, 32, 64)},
    "lengths beyond the cap": {"cost": "n", "mb_max_batch_size": 300, "allowed_lengths": (128, 512)},
    "a row above the bytes of a batch": {
        "seen": times(row_bytes=600),
        "mb_max_batch_bytes": 1000,
        "plan": {"max_body_bytes": 1000},
    },
    "a body above the bytes of a batch": {"mb_max_batch_bytes": 1000},
    "a queue below a batch": {"plan": {"max_queue_rows": 999}},
    "a queue below the bytes of a batch": {"plan": {"max_queue_bytes": 999}},
    "a stop that does not wait": {"plan": {"drain_timeout_s": 0.1}},
    "policy none where batches gain": {"policy": "none"},
    "batches that gain nothing": {"seen": times(0.1, 1, largest=128), "mb_max_batch_size": 100},
    "stages that could overlap": {"seen": times(stages_s=(0.02, 0.03, 0.001))},
    "more workers than cores": {"plan": {"workers": 5}},
    "more threads than cores": {"plan": {"workers": 2, "threads": 4}},
    "more workers than GPUs": {"plan": {"workers": 3, "gpus": ("0", "1")}},
    "more GPUs than workers": {"plan": {"workers": 1, "gpus": ("0", "1")}},
    "workers beyond the memory": {
        "plan": {"workers": 3, "worker_bytes": 400 * MIB, "free_bytes": 1000 * MIB}
    },
    "a worker above its limit": {"plan": {"worker_bytes": 400 * MIB, "max_worker_memory_bytes": 300 * MIB}},
    "a batch beyond the memory": {
        "seen": times(**GROWING),
        "plan": {"worker_bytes": 100 * MIB, "free_bytes": 600 * MIB},
    },
    "a batch that runs out of memory": {"seen": times(largest=16, fits=16.0)},
    "a batch above the limit of a worker": {
        "seen": times(**GROWING),
        "plan": {"worker_bytes": 100 * MIB, "max_worker_memory_bytes": 200 * MIB},
    },
    "more connections than files": {"plan": {"max_connections": 925, "possible_connections": 924}},
    "keys in the clear": {"plan": {"has_keys": True, "host": "0.0.0.0"}},
    "operators' port for all": {"plan": {"admin_host": "0.0.0.0"}},
    # What only looks wrong.
    "keys over TLS": {"plan": {"has_keys": True, "has_tls": True, "host": "0.0.0.0"}},
    "keys on this machine": {"plan": {"has_keys": True, "host": "localhost"}},
    "operators' port on this machine": {"plan": {"admin_host": "127.0.0.1"}},
    "more workers than cores, with GPUs": {"plan": {"workers": 9, "cores": 2, "gpus": tuple("012345678")}},
    "sizes around the cap": {"mb_max_batch_size": 20, "allowed_batch_sizes": (16, 64)},
    "sizes of rows, and a cost": {"cost": "n", "mb_max_batch_size": 32, "allowed_batch_sizes": (16, 32, 64)},
    "lengths around the cap": {"cost": "n", "mb_max_batch_size": 512, "allowed_lengths": (128, 512)},
    "policy none where batches gain little": {"policy": "none", "seen": times(0.1, 1)},
    "rows compared": {"api": {"comparison": Comparison()}},
    "a stream runs alone": {"policy": "none", "api": {"streams": True}, "seen": times(400, 1, largest=1)},
    "a queue of few rows, and a cost": {"cost": "bytes", "plan": {"max_queue_rows": 10}},
    "stages of which one is short": {"seen": times(stages_s=(0.001, 0.03, 0.0))},
    "stages that must not run twice": {"seen": times(stages_s=(0.02, 0.03, 0.0)), "idempotent": False},
    # Errors come first, then warnings and notes, of all APIs and of each.
    "several": {
        "timeout": 0.2,
        "mb_max_batch_bytes": 1000,
        "plan": {"workers": 5, "has_keys": True, "host": "::"},
    },
    "a model that pads": {"seen": PADDING, "mb_max_batch_size": 16},
    "a model that pads, and a cost": {"seen": PADDING, "mb_max_batch_size": 16, "cost": "bytes"},
}
# A long batch of a slow API leaves no time to the fast one, which takes 11 ms: the goal of the fast one, the
# batch of the slow one, and workers of their own and concurrency of both.
NEIGHBORS: list[tuple[int, int, tuple[int | None, int | None], tuple[int, int]]] = [
    (50, 2000, (None, None), (1, 1)),
    (50, 36, (None, None), (1, 1)),
    (50, 2000, (1, None), (1, 1)),
    (50, 2000, (None, 1), (1, 1)),
    (5, 2000, (None, None), (1, 1)),
    (50, 2000, (None, None), (2, 1)),
    (50, 2000, (None, None), (1, 2)),
    (50, 2000, (None, None), (2, 2)),
]
OF_GPUS = {"workers": 2, "gpus": ("0", "1")}
OF_RAY = {"workers": 64, "worker_bytes": 400 * MIB, "is_elsewhere": True}
PUBLIC = {"workers": 1, "host": "0.0.0.0", "has_keys": True}
TOGETHER: list[list[dict[str, Any]]] = [
    [{"workers": 2}, {"workers": 2}],
    [{"workers": 4}, OF_GPUS, {"workers": 1, "gpus": ("2",)}],
    # Those with GPUs of their own do not count.
    [{"workers": 3}, {"workers": 2}, {"workers": 1, "gpus": ("0",)}],
    # A worker without a limit has at least one thread.
    [{"workers": 2, "threads": 1}, {"workers": 2}],
    [{"workers": 1, "threads": 3}, {"workers": 2}],
    [{"workers": 2, "worker_bytes": 400 * MIB}, {"workers": 1, "worker_bytes": 300 * MIB}],
    # GPUs without a worker do not count.
    [{"workers": 1, "gpus": ("0",)}, OF_GPUS, {"workers": 1, "gpus": ("1",)}],
    [PUBLIC, PUBLIC],
    # Ray starts workers on other machines.
    [{**OF_RAY, "threads": 9}, OF_RAY],
    [OF_RAY, {"workers": 5}],
]


def test_what_is_wrong_is_found() -> None:
    """That, and nothing else; the figures have the number to set."""
    parts = [text(name, of_one(**given)) for name, given in CASES.items()]
    parts += [text(f"neighbors {one}", beside(*one)) for one in NEIGHBORS]
    parts += [text(f"together {plans}", together(plans)) for plans in TOGETHER]
    check_texts(Path(__file__).parent / "judging.txt", "".join(parts))


def text(name: str, findings: Sequence[Finding]) -> str:
    lines = [name]
    for one in findings:
        figures = {
            name: float(f"{value:.4g}") if isinstance(value, float) else value
            for name, value in one.advice.figures.items()
        }
        lines.append(f"    {one.severity} {one.advice.code} {figures}")
    return "\n".join(lines) + "\n"


def of_one(
    *, seen: Times | None = None, plan: dict[str, Any] | None = None, api: dict[str, Any] | None = None,
    **settings: Any,
) -> Sequence[Finding]:  # fmt: skip
    figures = ApiFigures(
        name="predict",
        settings=ApiSettings(**settings),
        times=times() if seen is None else seen,
        **(api or {}),
    )
    return judge({"": Figures(service="S", plan=Plan(**{"cores": 4, **(plan or {})}), apis=(figures,))})


def beside(
    goal_ms: int, slow_ms: int, reserved: tuple[int | None, int | None], concurrency: tuple[int, int]
) -> Sequence[Finding]:
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
    return judge({"": Figures(service="S", plan=Plan(cores=8, workers=4), apis=tuple(apis))})


def together(plans: list[dict[str, Any]]) -> Sequence[Finding]:
    machine = {"cores": 4, "free_bytes": 1000 * MIB, "worker_bytes": 100 * MIB}
    found = judge(
        {
            name: Figures(service="S", plan=Plan(**{**machine, **plan}), apis=())
            for name, plan in zip("abc", plans, strict=False)
        }
    )
    assert not any(one.service for one in found)
    return found


def test_batches_have_the_memory_that_other_services_leave() -> None:
    """A full batch fits alone, but not beside the workers of the other service."""
    full = ApiFigures(
        name="predict", settings=ApiSettings(), times=times(largest=1024, memory_per_row_bytes=0.7 * MIB)
    )
    mine = Plan(cores=4, free_bytes=1000 * MIB, worker_bytes=100 * MIB)
    alone = {"a": Figures(service="A", plan=mine, apis=(full,))}
    other = Figures(service="B", plan=replace(mine, worker_bytes=400 * MIB), apis=())
    assert judge(alone) == []
    [found] = judge({**alone, "b": other})
    assert (found.severity, found.advice.code, found[2:]) == ("error", "cap-above-memory", ("predict", "a"))
    assert found.advice.figures["room"] == 600 * MIB
    elsewhere = Figures(service="A", plan=replace(mine, free_bytes=MIB, is_elsewhere=True), apis=(full,))
    assert judge({"a": elsewhere}) == []


def test_batches_grow_into_the_memory_that_is_free_and_allowed() -> None:
    assert Plan(free_bytes=5 * MIB, max_worker_memory_bytes=3 * MIB).room_bytes == 3 * MIB
    assert Plan(free_bytes=0).room_bytes == Plan(free_bytes=0, max_worker_memory_bytes=MIB).room_bytes == 0
    assert Plan().room_bytes is None


ROOT = Path(__file__).parents[4]


def test_the_page_lists_what_can_be_found() -> None:
    judges = "".join(file.read_text() for file in (ROOT / "uncork" / "cli" / "check").glob("*.py"))
    page = (ROOT / "docs" / "guides" / "check.md").read_text()

    listed = re.findall(r"^\| `([a-z-]+)` \| (?:error|warning|note) \|", page, re.MULTILINE)
    assert sorted(listed) == sorted({key.partition("/")[0] for key in TEMPLATES if f'"{key}"' in judges})
