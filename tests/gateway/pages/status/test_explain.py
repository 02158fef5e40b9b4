"""Sentences about an API."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.gateway.pages.status.any_figures import NOT_READY, RELEASES, any_figures
from tests.gateway.pages.status.staged import ESTIMATE, FAILURE, RUNNING, figures, recent, stats, work
from uncork_dispatcher import Estimate, Holding, ShedReason
from uncork_gateway.pages.status.advise import ADVICE, advise
from uncork_gateway.pages.status.explain import sentence, waits_for, why_refused, why_this_size
from uncork_gateway.pages.status.figures import Figures
from uncork_gateway.pages.status.formatting import PROXY, SERVICE, Names
from uncork_gateway.telemetry.recent import Recent


def test_an_idle_api() -> None:
    made = figures()

    assert sentence(made, SERVICE) == (
        "No request in the last 30 s. A batch takes 10 ms plus 2 ms per row (±10 %). 1 worker can answer 432 "
        "rows/s."
    )
    assert waits_for(made, SERVICE) == "nothing is queued"
    assert why_this_size(made, SERVICE) == "No recent batch."
    assert why_refused(made, SERVICE) is None
    assert made.limited_by == "nothing"


@pytest.mark.parametrize(
    ("window", "says"),
    [
        (recent(batches=1), "1 request in the last 30 s: too few to say more."),
        (recent(batches=19, statuses={422: 0}), "19 requests in the last 30 s: too few to say more."),
        (recent(batches=300, seconds=0.4), "300 requests in the last second: too early to say more."),
    ],
)
def test_few_requests_say_nothing(window: Recent, says: str) -> None:
    """Too few requests yield no rates, percentiles or means."""
    made = figures(stats({"max_batch_rows": 4}), recent=window, goal_s=0.014)

    assert sentence(made, SERVICE).startswith(f"{says} A batch takes")
    assert why_this_size(made, SERVICE) == "Too few requests to say."
    assert (made.limited_by, advise(made, SERVICE)) == ("nothing", [])
    assert sentence(made, SERVICE).count("rows/s") == 1  # the capacity


def test_a_busy_api() -> None:
    made = figures(recent=recent(batches=1000, each=6, reason="not_worth_waiting", ran_s=0.022, took_s=0.025))

    assert sentence(made, SERVICE) == (
        "In the last 30 s, 200 rows/s arrived, in batches of 6 rows on average. A request spent 1 ms queued "
        "and 22 ms in its batch; p99 latency was 29.9 ms (goal 300 ms). A batch takes 10 ms plus "
        "2 ms per row (±10 %); with 3.33 rows in each, 1 worker keeps up. Nothing limits it: 1 worker can "
        "answer 432 rows/s."
    )


def test_an_api_whose_every_answer_is_an_error() -> None:
    """The errors come first, and no sentence says that all is well."""
    made = figures(recent=recent(errors={500: 30}), failure=FAILURE)

    assert sentence(made, SERVICE).startswith(
        "30 of 30 requests ended in an error: the handler raised IndexError (service.py:12). In the last 30 s"
    )
    assert "Nothing limits it" not in sentence(made, SERVICE)


def test_an_api_that_refuses() -> None:
    made = figures(recent=recent(batches=30, sheds={"deadline": 70}, statuses={422: 100}, rate=900))

    assert sentence(made, SERVICE).startswith("70 of 100 requests were refused. In the last 30 s, 900 rows/s")
    assert " 100 of 200 requests got a 4xx. " in sentence(made, SERVICE)


def test_one_request_is_one() -> None:
    refused = figures(stats(queued_requests=1), recent=recent(sheds={"no_worker": 1}))
    assert sentence(refused, SERVICE).startswith(
        "1 of 1 request was refused. 1 request in the last 30 s: too"
    )
    assert str(why_refused(refused, SERVICE)).startswith("1 of 1 request (100 %) was refused with 503")
    assert sentence(figures(stats(queued_requests=1)), SERVICE).startswith(
        "No answer in the last 30 s: 1 request is queued or running. "
    )


def test_requests_that_wait_and_are_not_answered() -> None:
    running = RUNNING._replace(requests=2)
    made = figures(stats(queued_requests=3), work=work(1, running=[running]))

    assert sentence(made, SERVICE).startswith(
        "No answer in the last 30 s: 5 requests are queued or running. A batch takes"
    )


def test_what_is_promised_is_not_far_from_what_was_seen() -> None:
    """Estimates are not extrapolated beyond four times the largest batch."""
    small = figures(stats(known_rows=(1.0, 5.0)))

    # 20 rows in 10 + 2 * 20 ms; the cap allows 32.
    assert sentence(small, SERVICE).endswith(" 1 worker can answer at least 400 rows/s.")
    assert small.capacity_is_least
    assert not figures(stats(known_rows=(1.0, 8.0))).capacity_is_least


@pytest.mark.parametrize(
    ("estimate", "known", "says"),
    [
        (ESTIMATE, (1.0, 1.0), "A batch of 1 row takes 12 ms (±10 %); no other size was seen."),
        (ESTIMATE, (1.0, 32.0), "A batch takes 10 ms plus 2 ms per row (±10 %)."),
        (Estimate(0.0177, 1e-7, 0.29), (1.0, 32.0), "A batch takes 17.7 ms (±29 %), whatever its size."),
        (Estimate(1e-5, 0.002, 0.001), (1.0, 32.0), "A batch takes 2 ms per row (±1 %)."),
        (None, (1.0, 32.0), "Too few batches have succeeded to say how long one takes."),
        (ESTIMATE, None, "Too few batches have succeeded to say how long one takes."),
    ],
)
def test_how_long_a_batch_takes(
    estimate: Estimate | None, known: tuple[float, float] | None, says: str
) -> None:
    assert f" {says}" in sentence(figures(stats(known_rows=known), recent=recent(estimate=estimate)), SERVICE)


HELD: dict[str, Any] = {"queued_requests": 3, "queued_rows": 3.0, "oldest_s": 0.004}
ELSEWHERE = RUNNING._replace(api="slow", left_s=-0.003)


@pytest.mark.parametrize(
    ("workers", "changes", "says"),
    [
        (work(0), {}, f"an idle worker: {NOT_READY}"),
        (
            work(1, running=[RUNNING]),
            {},
            "an idle worker: the only worker is busy; it should be done in 12 ms",
        ),
        (
            work(2, running=[RUNNING, ELSEWHERE]),
            {},
            "an idle worker: all 2 workers are busy, some with slow; the first should have been done 3 ms "
            "ago",
        ),
        (
            work(1),
            {"holding": Holding(0.0065, "window")},
            "the end of its window, for at most 6.5 ms",
        ),
        (
            work(2, running=[RUNNING]),
            {"holding": Holding(0.004, "returns")},
            "the next requests of clients that were just answered, for at most 4 ms",
        ),
        (work(1), {}, "nothing: the queue is being released"),
    ],
    ids=["no worker", "one busy", "all busy", "window", "returns", "nothing"],
)
def test_what_is_waited_for(workers: Any, changes: dict[str, Any], says: str) -> None:
    made = figures(stats(**HELD, **changes), work=workers, not_ready_reason=NOT_READY)

    assert waits_for(made, SERVICE) == says


def test_a_proxy_has_other_names() -> None:
    made = figures(stats(**HELD), work=work(2, running=[RUNNING, RUNNING]))

    says = (
        "room for one more call: all 2 calls that may run at a time are running; the first should be done in "
        "12 ms"
    )
    assert waits_for(made, PROXY) == says


@pytest.mark.parametrize("reason", RELEASES)
def test_every_reason_of_a_release_has_words(reason: str) -> None:
    told = {one: why_this_size(figures(recent=recent(batches=30, reason=one)), SERVICE) for one in RELEASES}

    assert "100 % because" in told[reason]
    assert Counter(told.values())[told[reason]] == 1


@pytest.mark.parametrize(
    ("reason", "says"),
    [
        (
            "deadline",
            "503 (deadline), because they could not have met the goal of 300 ms (900 rows/s arrived, and 1 "
            "worker can answer 432 rows/s).",
        ),
        (
            "client_deadline",
            "504 (client_deadline), because the time in their X-Request-Timeout-Ms had passed.",
        ),
        (
            "queue_full",
            "503 (queue_full), because the queue holds 20000 rows (--max-queue-rows) and 256 MiB "
            "(--max-queue-bytes).",
        ),
        ("no_worker", "503 (no_worker), because nothing was ready to run them (1 worker is ready now)."),
        ("draining", "503 (draining), because the server is shutting down."),
    ],
)
def test_why_a_request_was_refused(reason: ShedReason, says: str) -> None:
    made = figures(recent=recent(batches=60, sheds={reason: 40}, rate=900))

    assert why_refused(made, SERVICE) == f"40 of 100 requests (40 %) were refused with {says}"


def test_several_reasons_have_their_shares() -> None:
    """Bodies without room are refused before they reach the dispatcher."""
    window = recent(batches=10, sheds={"deadline": 60, "client_deadline": 20}, statuses={503: 20}, rate=100)

    assert why_refused(figures(recent=window), SERVICE) == (
        "100 of 110 requests (91 %) were refused: 60 % with 503 (deadline), because they could not have met "
        "the goal of 300 ms (they came in bursts: on average 100 rows/s arrived, and 1 worker can answer 432 "
        "rows/s); 20 % with 504 (client_deadline), because the time in their X-Request-Timeout-Ms had "
        "passed; 20 % with 503, because too many large bodies were being received at once."
    )


CAP_4 = {"max_batch_rows": 4}


@pytest.mark.parametrize(
    ("made", "limit"),
    [
        (figures(work=work(0), not_ready_reason=NOT_READY), "workers"),
        (figures(stats(smallest_rows=200.0), recent=recent(batches=30)), "goal"),
        (figures(recent=recent(batches=30, each=32, reason="full", rate=700)), "workers"),
        (figures(stats(CAP_4), recent=recent(batches=30, each=4, reason="full", rate=300)), "cap"),
        (figures(recent=recent(batches=30, each=8, rate=400), goal_s=0.030), "goal"),
        (figures(stats(CAP_4), recent=recent(batches=30, each=4, reason="full", rate=90)), "cap"),
        (figures(recent=recent(batches=30, each=2, rate=100)), "nothing"),
        (figures(stats({"policy": "none"}, limit_rows=1), recent=recent(batches=30, rate=60)), "nothing"),
        (figures(stats({"policy": "none"}, limit_rows=1), recent=recent(batches=30, rate=83)), "workers"),
        (
            figures(
                stats({"policy": "none"}, limit_rows=1), recent=recent(batches=30, queued_s=0.575, rate=19)
            ),
            "workers",
        ),
        (figures(recent=recent(batches=30, queued_s=0.575, rate=19)), "nothing"),
    ],
    ids=[
        "no worker",
        "out of reach",
        "workers",
        "cap",
        "goal",
        "cap at a low rate",
        "nothing",
        "policy none at a low rate",
        "policy none at full load",
        "policy none after a burst",
        "a policy that holds",
    ],
)
def test_what_limits(made: Figures, limit: str) -> None:
    """The limit whose removal would help."""
    assert made.limited_by == limit


def test_policy_none_under_load_holds_nothing() -> None:
    """Its requests are queued because the workers are busy."""
    none = stats({"policy": "none"}, limit_rows=1)
    made = figures(none, recent=recent(batches=600, queued_s=0.575, took_s=0.59, rate=66), goal_s=1.0)

    told = sentence(made, SERVICE)
    assert "A request spent 575 ms queued and 12 ms in its batch;" in told
    assert told.endswith("The workers limit it: 1 worker can answer 83.3 rows/s.")
    assert not re.search(r"\bh[eo]ld\b|Nothing limits", told + why_this_size(made, SERVICE))
    [cork, more] = advise(made, SERVICE)
    assert (cork.code, more.code) == ("policy_none", "add_workers")
    assert more.text == (
        "requests spent 575 ms queued and 12 ms in their batches: 66 rows/s arrived, and 1 worker can answer "
        "83.3 rows/s; add 1 worker (--workers)"
    )


@given(made=any_figures(), names=st.sampled_from([SERVICE, PROXY]))
def test_whatever_the_figures_the_words_can_be_read(made: Figures, names: Names) -> None:
    advice = advise(made, names)
    sentences = [sentence(made, names), why_this_size(made, names), why_refused(made, names)]
    texts = [*filter(None, sentences), waits_for(made, names), *(one.text for one in advice)]

    for text in texts:
        assert text == text.strip()
        for wrong in (r"\bnan\b", r"\binf\b", "None", r"e[+-]\d", "  ", r"\.\.", "{", r"-\d", " ,", "_$"):
            assert not re.search(wrong, text.replace("mb_max", "")), text
    for text in filter(None, sentences):
        assert re.fullmatch(r"[A-Z0-9].*\.", text), text
    assert [one.code for one in advice] == [code for code in ADVICE if code in {one.code for one in advice}]
    assert made.limited_by in ("nothing", "workers", "goal", "cap")
