"""The words of all advice: ``advice.txt`` has each template, filled in."""

from pathlib import Path

import pytest

from tests.expected import check_texts
from uncork_dispatcher.advice import advise
from uncork_dispatcher.advice_texts import TEMPLATES
from uncork_dispatcher.wording import are, exact, mebibytes, ms, number, percent, plural, times

# A value for each figure that templates have.
FIGURES = {
    "about": "about",
    "alone_s": 0.012,
    "answered": 1247,
    "apis": "APIs",
    "at": 2,
    "base": 209_715_200,
    "batch": 1000,
    "body": 67_108_864,
    "cap": 32,
    "capacity": 432.4,
    "connections": 925,
    "cores": 2,
    "cost": "bytes",
    "client_s": 0.1,
    "drain": 30.0,
    "each": 1_572_864,
    "error": "IndexError",
    "error_id": "77ab",
    "expected": "0.25",
    "failed": 47,
    "first": "sent 1, expected 2, got 3",
    "fits": 28.0,
    "fixed_s": 0.025,
    "fitting": 24,
    "found": "0.31",
    "free": 4_294_967_296,
    "full_s": 0.3615,
    "gain": 1.14,
    "gap_s": 0.05,
    "goal_s": 0.3,
    "gpu": "0",
    "gpus": 2,
    "handler": "the handler",
    "host": "0.0.0.0",
    "lengths": "512, 1024",
    "limit": 157_286_400,
    "limits": "4",
    "log": "the log",
    "long": 656,
    "long_s": 0.0204,
    "longest_s": 41.5,
    "lost": "the worker died while running the batch",
    "machine": "this machine",
    "measured_s": 0.0534,
    "mixed_s": 0.0191,
    "more": 2,
    "most": 1_000_000,
    "name": "p99",
    "needed_s": 0.4103,
    "needs": 1_073_741_824,
    "now": 67_108_864,
    "option": "--workers",
    "origin": 3,
    "other": "slow",
    "other_s": 2.04,
    "others": 0.4,
    "padding": 0.38,
    "part": "worker",
    "parts": "workers",
    "passed": 12,
    "place": " (service.py:12)",
    "policy": "fixed:20",
    "possible": 924,
    "predicted_s": 0.0401,
    "queue": 500,
    "queue_bytes": 268_435_456,
    "queue_rows": 20_000,
    "queue_s": 0.575,
    "rate": 900.4,
    "ratio": 1.332,
    "refused": 80,
    "requests": 8,
    "room": 524_288_000,
    "reason": "no worker is ready: worker 0 was killed by SIGKILL",
    "row": 600_000,
    "rows": 8,
    "run_s": 0.012,
    "says": "raises KeyError: 'a' (service.py:7)",
    "services": "a and b",
    "setting": "mb_max_batch_size",
    "share": 0.625,
    "shares": " (a: 3, b: 2)",
    "short": 17,
    "short_s": 0.0052,
    "sizes": "64, 128",
    "spread": 0.6,
    "status": 500,
    "threads": 8,
    "timeout": "the API's timeout",
    "timeout_s": 5.0,
    "to_s": 0.09,
    "to": 16,
    "to_bytes": 419_430_400,
    "tolerance": "0.1 % plus 1e-05",
    "unit": "row",
    "wanted": 0.99,
    "where": "`$[1]` of the result",
    "why": "the generator was late",
    "workers": 4,
    "wrong": 2,
}


def test_every_template_is_as_reviewed() -> None:
    lines = [f"{key}\n    {advise(key, **FIGURES).text}\n" for key in TEMPLATES]

    check_texts(Path(__file__).with_name("advice.txt"), "".join(lines))


def test_every_figure_is_in_a_template() -> None:
    used = {
        name
        for template in "".join(part for parts in TEMPLATES.values() for part in parts).split("}")
        for name in template.replace("{", ":").split(":")
    }

    assert FIGURES.keys() <= used
    assert all(remedy or wrong for wrong, remedy in TEMPLATES.values())


def test_an_advice_has_its_code_figures_and_both_parts() -> None:
    made = advise("add_workers/waiting", queue_s=0.5, run_s=0.01, workers=1, part="call", more=2, option="-n")

    assert made.code == "add_workers"
    assert made.figures["more"] == 2
    assert made.text == f"{made.wrong.capitalize()}; {made.remedy}."
    assert made.remedy == "add 2 calls (-n)"
    assert advise("load-test-failed", why="no reply").clause == "the load test failed: no reply"


def test_a_figure_that_is_missing_is_an_error() -> None:
    with pytest.raises(KeyError, match="spread"):
        advise("noisy", machine="m")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (number(12.5), "12"),
        (number(1234.6), "1,230"),
        (number(0.0004), "0"),
        (number(float("inf")), "any number"),
        (exact(20_000), "20,000"),
        (exact(10.5), "10.5"),
        (exact(float("inf")), "any number"),
        (ms(0.00004), "40 µs"),
        (ms(0.0123), "12 ms"),
        (ms(14.2), "14 s"),
        (ms(float("inf")), "any time"),
        (percent(0.001), "less than 1 %"),
        (percent(0.999), "more than 99 %"),
        (percent(0.625), "62 %"),
        (times(1.14), "1.1 times"),
        (times(25.3), "25 times"),
        (mebibytes(10_000_000), "9.54 MiB"),
        (mebibytes(2**33), "8192 MiB"),
        (plural("1", "row"), "1 row"),
        (are(1), "is"),
        (are(2), "are"),
        (plural("1.5", "unit of cost", "units of cost"), "1.5 units of cost"),
    ],
)
def test_numbers_are_rounded_to_what_matters(text: str, expected: str) -> None:
    assert text == expected
