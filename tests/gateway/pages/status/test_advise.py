"""Advice."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.gateway.pages.status.staged import FAILURE, figures, recent, stats, work
from uncork_dispatcher import Estimate
from uncork_gateway.pages.status.advise import ADVICE, advise
from uncork_gateway.pages.status.figures import Figures
from uncork_gateway.pages.status.formatting import PROXY, SERVICE, Names

FULL = recent(batches=30, each=4, reason="full", rate=100)
NOISY = Estimate(intercept_s=0.010, slope_s=0.002, spread=0.6)
BY_ROWS = Estimate(intercept_s=0.0001, slope_s=0.002, spread=0.1)
CAP_4 = {"max_batch_rows": 4}

CASES: dict[str, tuple[Figures, str]] = {
    "no_worker": (
        figures(work=work(0), not_ready_reason="no worker is ready: worker 0 was killed by SIGKILL"),
        "no worker is ready: worker 0 was killed by SIGKILL",
    ),
    "errors": (
        figures(recent=recent(batches=7, errors={500: 2, 504: 1}), failure=FAILURE),
        "3 of 10 requests ended in an error: 2 because the handler raised IndexError (service.py:12), 1 "
        "because a batch ran past its timeout. Fix the handler: the log has the traceback under error id "
        "77ab. Find out why batches take so long, or raise their timeout",
    ),
    "goal_out_of_reach": (
        figures(stats(smallest_rows=200.0), recent=recent(batches=3, ran_s=0.41)),
        "a request of 200 rows takes 410 ms by itself, longer than mb_max_latency (300 ms): raise the goal, "
        "or make the model faster",
    ),
    "raise_cap": (
        figures(stats(CAP_4), recent=FULL),
        "100 % of the batches reach the cap of 4 rows: raise mb_max_batch_size, for example to 8; twice the "
        "cap would answer 1.4 times as much",
    ),
    "raise_batch_bytes": (
        figures(recent=FULL),
        "100 % of the batches are full with 4 rows of 32, because of their bytes: raise mb_max_batch_bytes "
        "(67108864)",
    ),
    "raise_goal": (
        figures(recent=recent(batches=30, each=8, took_s=0.04, rate=400), goal_s=0.030),
        "a batch that meets mb_max_latency (30 ms) has at most 7 rows: raise it if your clients can wait; "
        "twice the goal would answer 1.3 times as much",
    ),
    "policy_none": (
        figures(stats({"policy": "none"}, limit_rows=1)),
        "policy none runs each request by itself: take policy cork, so that requests share batches",
    ),
    "add_workers": (
        figures(recent=recent(batches=30, each=32, took_s=1.0, rate=900)),
        "p99 was 998 ms, 3.3 times the goal (mb_max_latency 300 ms): 900 rows/s arrived, and 1 worker can "
        "answer 432 rows/s; add 2 workers (--workers)",
    ),
    "raise_queue": (
        figures(recent=recent(batches=900, sheds={"queue_full": 2}, rate=50)),
        "the queue was full for 2 requests, though the workers have time on average: raise --max-queue-rows "
        "(20000) or --max-queue-bytes for such bursts",
    ),
    "shared_workers": (
        figures(recent=recent(batches=30, queued_s=0.2), others_share=0.9, busiest_other="slow"),
        "requests spent 200 ms queued and 12 ms in their batches: other apis take 90 % of the time, most of "
        "it slow: give slow a server of its own, or add workers (--workers)",
    ),
    "client_deadline": (
        figures(recent=recent(batches=30, sheds={"client_deadline": 1})),
        "the time in X-Request-Timeout-Ms passed for 1 request, while p50 latency was 12.5 ms: have clients "
        "allow more time",
    ),
    "fixed_window": (
        figures(stats({"policy": "fixed:20"}), recent=recent(batches=30, queued_s=0.02)),
        "requests spent 20 ms queued under policy fixed:20, and a batch has 1 request: take policy cork, "
        "which holds only when that pays off",
    ),
    "slope_dominated": (
        figures(recent=recent(batches=30, each=2, rate=100, estimate=BY_ROWS)),
        "each row costs almost as much as the first, and batching gains at most 1.0 times: check whether the "
        "handler loops over rows",
    ),
    "noisy": (
        figures(recent=recent(batches=30, estimate=NOISY)),
        "batch times scatter by 60 % around the estimate, which costs goals much room: look for other work "
        "on this machine, or for rows that take unequal time",
    ),
    "closed_loop": (
        figures(stats(returning_share=1.0, clients=4), recent=recent(batches=30, each=3, rate=200)),
        "about 4 clients send a request each and wait for the answer, so a batch has at most 4 requests: for "
        "larger ones, send more at once",
    ),
    "thin_traffic": (
        figures(recent=recent(batches=30, rate=20)),
        "traffic is thin: requests come 50 ms apart on average, and one alone takes 12 ms; small batches are "
        "right",
    ),
}


def told(made: Figures, names: Names = SERVICE) -> dict[str, str]:
    """Return the advice by code."""
    return {one.code: one.text for one in advise(made, names)}


def test_every_code_has_a_case() -> None:
    assert tuple(CASES) == tuple(code for code in CASES if code in ADVICE)
    assert set(CASES) == set(ADVICE)


def test_the_page_lists_every_code() -> None:
    page = (Path(__file__).parents[4] / "docs/reference/status.md").read_text()
    section = page.partition("## Advice")[2].partition("## ")[0]

    assert re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE) == list(ADVICE)


@pytest.mark.parametrize("code", CASES)
def test_the_advice_names_cause_and_cure(code: str) -> None:
    made, text = CASES[code]

    assert told(made)[code] == text


def test_an_idle_api_needs_no_advice() -> None:
    assert told(figures()) == {}
    assert told(figures(recent=recent(batches=30, each=6, rate=200))) == {}
    assert told(figures(stats(CAP_4), recent=recent(batches=4, each=4, reason="full", rate=900))) == {}


def test_a_cap_that_gains_nothing_is_left_alone() -> None:
    full = FULL._replace(estimate=BY_ROWS)

    assert "raise_cap" not in told(figures(stats(CAP_4), recent=full))
    assert "raise_cap" not in told(figures(stats(CAP_4), recent=FULL, goal_s=0.021))


def test_refusals_ask_for_workers() -> None:
    made = figures(recent=recent(batches=10, each=32, sheds={"deadline": 80}, rate=900))

    assert told(made)["add_workers"] == (
        "20 % of the requests were refused, because 900 rows/s arrived, and 1 worker can answer 432 rows/s; "
        "add 2 workers (--workers)"
    )


def test_refusals_below_all_capacity_are_of_bursts() -> None:
    """The average rate is below the capacity."""
    made = figures(recent=recent(batches=10, each=32, sheds={"deadline": 80}, rate=100))

    assert told(made)["add_workers"] == (
        "20 % of the requests were refused, because they came in bursts: on average 100 rows/s arrived, and "
        "1 worker can answer 432 rows/s; add 1 worker (--workers)"
    )


def test_workers_that_others_use_are_not_there() -> None:
    """Other APIs take half of a worker's time; the stated capacity does not change."""
    busy = recent(batches=10, each=20, rate=300)
    made = figures(recent=busy, others_share=0.5, busiest_other="b")

    assert told(made)["add_workers"] == (
        "there is no room for bursts: 300 rows/s arrived, and 1 worker can answer 432 rows/s, but spent 50 % "
        "of the time on other apis; add 1 worker (--workers)"
    )


def test_a_queue_that_is_full_for_want_of_workers_is_not_to_grow() -> None:
    """A larger queue would fill too."""
    made = figures(recent=recent(batches=90, sheds={"queue_full": 9}, rate=900))

    assert "raise_queue" not in told(made)
    assert "add_workers" in told(made)


def test_a_pool_of_connections_is_no_closed_loop() -> None:
    pooled = stats(returning_share=1.0, clients=56)

    assert "closed_loop" not in told(figures(pooled, recent=recent(batches=30, each=3, rate=200)))


def test_what_streams_cannot_be_merged() -> None:
    assert told(figures(stats({"policy": "none"}, limit_rows=1), streams=True)) == {}


def test_a_proxy_is_advised_in_its_own_words() -> None:
    advice = told(figures(stats(CAP_4), recent=recent(batches=30, each=4, reason="full", rate=900)), PROXY)
    assert "raise --max-batch-size" in advice["raise_cap"]
    assert advice["add_workers"].endswith("calls at a time (another server, or a higher --concurrency)")
    late = figures(stats(smallest_rows=200.0), recent=recent(batches=3))
    assert "longer than --goal-ms (300 ms)" in told(late, PROXY)["goal_out_of_reach"]
