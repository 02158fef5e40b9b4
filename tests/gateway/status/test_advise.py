"""What to do about it."""

from __future__ import annotations

import pytest

from uncork_dispatcher import Estimate
from uncork_gateway.status.advise import CODES, advise
from uncork_gateway.status.figures import Figures
from uncork_gateway.status.words import PROXY, SERVICE, Names

from .staged import ESTIMATE, figures, recent, stats, work

FULL = recent(batches=20, each=4, reason="full")
NOISY = Estimate(intercept_s=0.010, slope_s=0.002, spread=0.6)
BY_ROWS = Estimate(intercept_s=0.0001, slope_s=0.002, spread=0.1)

CASES: dict[str, tuple[Figures, str]] = {
    "no_worker": (
        figures(doing=work(0), trouble="no worker is ready: worker 0 was killed by SIGKILL"),
        "no worker is ready: worker 0 was killed by SIGKILL",
    ),
    "goal_out_of_reach": (
        figures(stats(needed_s=0.45), recent(batches=3, ran_s=0.45)),
        "1 row takes 450 ms, longer than mb_max_latency (300 ms): raise the goal or make the model faster",
    ),
    "raise_cap": (
        figures(stats({"max_batch_rows": 4}, rate_rows=100.0), FULL),
        "the batch cap of 4 rows is reached in 100 % of the releases: raise mb_max_batch_size, for "
        "example to 8; "
        "1.4 times as much could be answered with twice the cap",
    ),
    "raise_batch_bytes": (
        figures(stats(rate_rows=100.0), FULL),
        "100 % of the batches are full with 4 rows of 32, because of their bytes: raise mb_max_batch_bytes "
        "(67108864)",
    ),
    "raise_goal": (
        figures(stats(rate_rows=400.0), recent(batches=20, each=8, took_s=0.04), goal_s=0.030),
        "within mb_max_latency (30 ms) a batch can have 7 rows; with twice the goal 1.3 times as "
        "much could be "
        "answered: raise it if your clients can wait",
    ),
    "add_workers": (
        figures(stats(rate_rows=900.0), recent(batches=20, each=32, took_s=1.0)),
        "p99 is 998 ms, 3.3 times the goal (mb_max_latency 300 ms) at this rate: 900 rows/s arrive "
        "and 1 worker "
        "can answer 432 rows/s; add 2 workers (--workers)",
    ),
    "raise_queue": (
        figures(stats(rate_rows=50.0), recent(batches=900, sheds={"queue_full": 2})),
        "the queue was full for 2 requests, though on average there is room: raise --max-queue-rows "
        "(20000) or "
        "--max-queue-bytes for such bursts",
    ),
    "shared_workers": (
        figures(lately=recent(batches=9, held_s=0.2), others_share=0.9, busiest_other="slow"),
        "requests wait 200 ms for an idle worker and run 12 ms: other apis take 90 % of the time, "
        "most of it slow: "
        "give slow a server of its own, or add workers (--workers)",
    ),
    "client_deadline": (
        figures(lately=recent(batches=9, sheds={"client_deadline": 1})),
        "the time that clients allow in X-Request-Timeout-Ms passed for 1 request, while p50 is 12.5 "
        "ms: have them "
        "allow more",
    ),
    "errors": (
        figures(lately=recent(batches=9, statuses={500: 1, 502: 2})),
        "lately there were 1 answer 500 (the handler raised), 2 answers 502 (a worker was lost): the "
        "log says more",
    ),
    "policy_none": (
        figures(stats({"policy": "none"}, limit_rows=1)),
        "policy none merges nothing: every request is a batch of its own; take policy cork to have batches",
    ),
    "fixed_window": (
        figures(stats({"policy": "fixed:20"}), recent(batches=9, held_s=0.02)),
        "policy fixed:20 holds requests 20 ms and merges 1 request a batch: take policy cork, which "
        "does not hold "
        "where nobody is to come",
    ),
    "slope_dominated": (
        figures(stats(estimate=BY_ROWS, rate_rows=100.0), recent(batches=30, each=2)),
        "each row costs almost as much as the first: batching gains at most 1.0 times; look whether "
        "the model takes "
        "them one by one",
    ),
    "noisy": (
        figures(stats(estimate=NOISY), recent(batches=30)),
        "batch times scatter by 60 % around the estimate, so that goals need much room: look for "
        "other work on this "
        "machine, or for rows that take unequal time",
    ),
    "closed_loop": (
        figures(stats(rate_rows=200.0, returning_share=1.0, clients=4), recent(batches=30, each=3)),
        "each client waits for its answer before it sends the next request: with about 4 clients, "
        "batches cannot be "
        "larger than 4 requests; for larger ones, send more at once",
    ),
    "thin_traffic": (
        figures(stats(rate_rows=20.0), recent(batches=30)),
        "traffic is thin: requests come 50 ms apart on average and one by itself takes 12 ms; small "
        "batches are "
        "right",
    ),
}


def told(made: Figures, names: Names = SERVICE) -> dict[str, str]:
    """The advice, by code."""
    return {one.code: one.text for one in advise(made, names)}


def test_every_code_has_a_case() -> None:
    """Codes are what programs rely on."""
    assert tuple(CASES) == tuple(code for code in CASES if code in CODES)
    assert set(CASES) == set(CODES)


@pytest.mark.parametrize("code", CASES)
def test_the_advice_names_cause_and_cure(code: str) -> None:
    """With the numbers, and the settings as users know them."""
    made, text = CASES[code]

    assert told(made)[code] == text


def test_an_idle_api_needs_no_advice() -> None:
    """Nor does one that has just the right load."""
    assert told(figures()) == {}
    assert told(figures(stats(rate_rows=200.0), recent(batches=30, each=6))) == {}


def test_a_cap_that_gains_nothing_is_left_alone() -> None:
    """Each row costs as much as the first, or the goal allows no more."""
    by_rows = stats({"max_batch_rows": 4}, estimate=BY_ROWS, rate_rows=100.0)

    assert "raise_cap" not in told(figures(by_rows, FULL))
    assert "raise_cap" not in told(figures(stats({"max_batch_rows": 4}, rate_rows=100.0), FULL, goal_s=0.021))


def test_refusals_ask_for_workers() -> None:
    """The share of them is what hurts."""
    made = figures(stats(rate_rows=900.0), recent(batches=10, each=32, sheds={"deadline": 80}))

    assert told(made)["add_workers"] == (
        "20 % of the requests are refused with 503, because 900 rows/s arrive and 1 worker can "
        "answer 432 rows/s; "
        "add 2 workers (--workers)"
    )


def test_refusals_below_all_capacity_are_of_bursts() -> None:
    """On average there would be room."""
    made = figures(stats(rate_rows=100.0), recent(batches=10, each=32, sheds={"deadline": 80}))

    assert (
        "they come in bursts: 100 rows/s arrive on average, and 1 worker can answer 432 rows/s; add 1 worker"
        in told(made)["add_workers"]
    )


def test_workers_that_others_use_are_not_there() -> None:
    """Half of one worker is gone."""
    made = figures(stats(rate_rows=300.0), recent(batches=10, each=20), others_share=0.5, busiest_other="b")

    assert "1 worker can answer 216 rows/s; add 1 worker (--workers)" in told(made)["add_workers"]


def test_a_queue_that_is_full_for_want_of_workers_is_not_to_grow() -> None:
    """It would fill all the same."""
    made = figures(stats(rate_rows=900.0), recent(batches=9, sheds={"queue_full": 9}))

    assert "raise_queue" not in told(made)
    assert "add_workers" in told(made)


def test_a_pool_of_connections_is_no_closed_loop() -> None:
    """Few of them wait at a time."""
    pooled = stats(rate_rows=200.0, returning_share=1.0, clients=56)

    assert "closed_loop" not in told(figures(pooled, recent(batches=30, each=3)))


def test_what_streams_cannot_be_merged() -> None:
    """So its policy is no mistake."""
    assert told(figures(stats({"policy": "none"}, limit_rows=1), streams=True)) == {}


def test_a_proxy_is_advised_in_its_own_words() -> None:
    """Its options, and what it has in place of workers."""
    capped = figures(stats({"max_batch_rows": 4}, rate_rows=900.0, estimate=ESTIMATE), FULL)

    advice = told(capped, PROXY)
    assert "raise --max-batch-size" in advice["raise_cap"]
    assert advice["add_workers"].endswith("calls at a time (another server, or a higher --concurrency)")
    late = figures(stats(needed_s=0.45), recent(batches=3))
    assert "longer than --goal-ms (300 ms)" in told(late, PROXY)["goal_out_of_reach"]
