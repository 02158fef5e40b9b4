"""What happens, in words."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from uncork_dispatcher import Estimate, Holding
from uncork_gateway.status.advise import CODES, advise
from uncork_gateway.status.explain import limited_by, sentence, waits_for
from uncork_gateway.status.figures import Figures
from uncork_gateway.status.reasons import why_refused, why_this_size
from uncork_gateway.status.words import PROXY, SERVICE, Names

from .staged import RUNNING, figures, recent, stats, work

TROUBLE = "no worker is ready: worker 0 was killed by SIGKILL"
HOLDS = ("balance", "returns", "goal", "next", "window", "suspect")
RELEASES = ("full", "deadline", "not_worth_waiting", "idle", "drain")
SHEDS = ("deadline", "client_deadline", "queue_full", "no_worker", "draining")
POLICIES = ("cork", "cork-classic", "fixed:5", "fixed:5:8", "aimd", "none")


def test_an_idle_api() -> None:
    """It says so, and that nothing is wrong."""
    made = figures()

    assert sentence(made, SERVICE) == (
        "No request has come in the last 30 s. A batch takes 10 ms and 2 ms more for each row, give or take "
        "10 %. Nothing limits it: 1 worker can answer 432 rows/s."
    )
    assert waits_for(made, SERVICE) == "nothing is held"
    assert why_this_size(made, SERVICE) == "No batch was released lately."
    assert why_refused(made, SERVICE) is None
    assert limited_by(made) == "nothing"


def test_an_api_whose_last_request_was_just_now() -> None:
    """Its rate fades away, and never gets to 0."""
    made = figures(stats(rate_rows=1e-29), recent(batches=20, each=6))

    assert sentence(made, SERVICE).startswith(
        "Nothing arrives now; a batch has 6 rows of 6 requests on average."
    )


def test_a_busy_api() -> None:
    """Traffic, batch time, balance, where time goes, and what limits."""
    made = figures(stats(rate_rows=200.0), recent(batches=20, each=6, reason="not_worth_waiting"))

    assert sentence(made, SERVICE) == (
        "200 rows/s arrive; a batch has 6 rows of 6 requests on average. A batch takes 10 ms and 2 ms more "
        "for each row, give or take 10 %; with 3.33 rows in each, 1 worker keeps up. A request is held "
        "1 ms and runs 12 ms, with 2 ms on the way; p99 is 14.9 ms, the goal 300 ms. Nothing limits it: "
        "1 worker can answer 432 rows/s."
    )


def test_what_is_promised_is_not_far_from_what_was_seen() -> None:
    """Batches of more than four times the rows of the largest so far may take any time."""
    small = figures(stats(known_rows=(1.0, 5.0)))

    # 20 rows in 10 + 2 * 20 ms; the cap allows 32.
    assert sentence(small, SERVICE).endswith("Nothing limits it: 1 worker can answer at least 400 rows/s.")
    assert small.capacity_is_least
    assert not figures(stats(known_rows=(1.0, 8.0))).capacity_is_least


def test_batches_of_one_size_tell_no_line() -> None:
    """How the time is split into a fixed part and rows is not known then."""
    one_size = stats(known_rows=(1.0, 1.0))

    assert "A batch of 1 row takes 12 ms, give or take 10 %; larger and smaller" in sentence(
        figures(one_size), SERVICE
    )


HELD: dict[str, Any] = {"queued_requests": 3, "queued_rows": 3.0, "oldest_s": 0.004}
ELSEWHERE = RUNNING._replace(api="slow", left_s=-0.003)


@pytest.mark.parametrize(
    ("doing", "changes", "says"),
    [
        (work(0), {}, f"an idle worker: {TROUBLE}"),
        (
            work(1, running=[RUNNING]),
            {},
            "an idle worker: the only worker runs a batch; it should be done in 12 ms",
        ),
        (
            work(2, running=[RUNNING, ELSEWHERE]),
            {},
            "an idle worker: all 2 workers run batches, some for slow; the first should have been "
            "done 3 ms ago",
        ),
        (
            work(1),
            {"holding": Holding(0.0065, "window")},
            "the end of its window, for 6.5 ms at most",
        ),
        (
            work(2, running=[RUNNING]),
            {"holding": Holding(0.004, "returns")},
            "clients that were answered to come back with their next request, for 4 ms at most",
        ),
        (work(1), {}, "nothing: what is held is released now"),
    ],
    ids=["no worker", "one busy", "all busy", "window", "returns", "nothing"],
)
def test_what_is_waited_for(doing: Any, changes: dict[str, Any], says: str) -> None:
    """A worker, a moment, or nothing."""
    assert waits_for(figures(stats(**HELD, **changes), doing=doing, trouble=TROUBLE), SERVICE) == says


def test_a_proxy_has_other_names() -> None:
    """It has calls, where a service has workers."""
    made = figures(stats(**HELD), doing=work(2, running=[RUNNING, RUNNING]))

    says = "room for one more call: all 2 calls that may run at a time do; the first should be done in 12 ms"
    assert waits_for(made, PROXY) == says


@pytest.mark.parametrize("reason", RELEASES)
def test_every_reason_of_a_release_has_words(reason: str) -> None:
    """Of its own."""
    told = {one: why_this_size(figures(lately=recent(batches=3, reason=one)), SERVICE) for one in RELEASES}

    assert "100 % because" in told[reason]
    assert Counter(told.values())[told[reason]] == 1


@pytest.mark.parametrize(
    ("reason", "says"),
    [
        (
            "deadline",
            "Lately 4 requests (40 %) got 503 (deadline): they could not have been answered within "
            "the goal of "
            "300 ms; 900 rows/s arrive and 1 worker can answer 432 rows/s.",
        ),
        (
            "client_deadline",
            "Lately 4 requests (40 %) got 504 (client_deadline): the time that their clients allow in "
            "X-Request-Timeout-Ms had passed.",
        ),
        (
            "queue_full",
            "Lately 4 requests (40 %) got 503 (queue_full): the queue had no room; it holds 20000 rows "
            "(--max-queue-rows) and 256 MiB (--max-queue-bytes).",
        ),
        (
            "no_worker",
            "Lately 4 requests (40 %) got 503 (no_worker): nothing was ready to run them; 1 worker "
            "is ready now.",
        ),
        (
            "draining",
            "Lately 4 requests (40 %) got 503 (draining): the server is shutting down.",
        ),
    ],
)
def test_why_a_request_was_refused(reason: str, says: str) -> None:
    """With the numbers that made it so."""
    made = figures(stats(rate_rows=900.0), recent(batches=6, sheds={reason: 4}))

    assert why_refused(made, SERVICE) == says


@pytest.mark.parametrize(
    ("made", "limit"),
    [
        (figures(doing=work(0), trouble=TROUBLE), "workers"),
        (figures(stats(needed_s=0.4), recent(batches=3)), "goal"),
        (figures(stats(rate_rows=700.0), recent(batches=9, each=32, reason="full")), "workers"),
        (
            figures(stats({"max_batch_rows": 4}, rate_rows=300.0), recent(batches=9, each=4, reason="full")),
            "cap",
        ),
        (figures(stats(rate_rows=400.0), recent(batches=9, each=8), goal_s=0.030), "goal"),
        (
            figures(stats({"max_batch_rows": 4}, rate_rows=90.0), recent(batches=9, each=4, reason="full")),
            "cap",
        ),
        (figures(stats(rate_rows=100.0), recent(batches=9, each=2)), "nothing"),
    ],
    ids=["no worker", "out of reach", "workers", "cap", "goal", "cap at a low rate", "nothing"],
)
def test_what_limits(made: Figures, limit: str) -> None:
    """The one that, if it were lifted, would help."""
    assert limited_by(made) == limit


positive = st.floats(0, 1e6, allow_nan=False)
share = st.floats(0, 1)


@st.composite
def any_figures(draw: st.DrawFn) -> Figures:
    """Whatever numbers there may be, also those that do not go together."""
    limit = draw(st.integers(1, 10_000))
    held = draw(st.integers(0, 100))
    workers = draw(st.integers(0, 9))
    running = [
        RUNNING._replace(api=draw(st.sampled_from(["predict", "slow"])), left_s=draw(st.floats(-100, 100)))
        for _ in range(draw(st.integers(0, workers)))
    ]
    size = draw(st.one_of(st.none(), st.tuples(positive, positive)))
    hold = st.builds(Holding, st.one_of(positive, st.just(float("inf"))), st.sampled_from(HOLDS))
    return figures(
        stats(
            {"max_batch_rows": limit, "policy": draw(st.sampled_from(POLICIES))},
            limit_rows=draw(st.sampled_from([1, limit])),
            estimate=draw(st.builds(Estimate, positive, positive, st.floats(0, 10), positive)),
            rate_rows=draw(positive),
            lasting_rate=draw(positive),
            returning_share=draw(share),
            clients=draw(st.integers(0, 1000)),
            needed_s=draw(positive),
            known_rows=size,
            queued_requests=held,
            queued_rows=float(held),
            holding=draw(st.one_of(st.none(), hold)),
        ),
        recent(
            batches=draw(st.integers(0, 30)),
            each=draw(st.integers(1, 4)),
            rows=draw(st.integers(1, 100)),
            reason=draw(st.sampled_from(RELEASES)),
            sheds=draw(st.dictionaries(st.sampled_from(SHEDS), st.integers(1, 50))),
            statuses=draw(
                st.dictionaries(st.sampled_from([400, 499, 500, 502, 503, 504]), st.integers(1, 50))
            ),
            held_s=draw(st.floats(0, 100)),
            ran_s=draw(st.floats(0, 100)),
            took_s=draw(st.floats(0, 100)),
        ),
        work(workers, running=running),
        goal_s=draw(st.one_of(st.none(), st.floats(1e-6, 1e4))),
        weighs=draw(st.booleans()),
        streams=draw(st.booleans()),
        others_share=draw(share),
        busiest_other=draw(st.sampled_from([None, "slow"])),
        draining=draw(st.booleans()),
        trouble=TROUBLE,
    )


@given(made=any_figures(), names=st.sampled_from([SERVICE, PROXY]))
def test_whatever_the_figures_the_words_can_be_read(made: Figures, names: Names) -> None:
    """Nothing raises, no number is none, and sentences are sentences."""
    advice = advise(made, names)
    sentences = [sentence(made, names), why_this_size(made, names), why_refused(made, names)]
    texts = [*filter(None, sentences), waits_for(made, names), *(one.text for one in advice)]

    for text in texts:
        assert text == text.strip()
        for wrong in (r"\bnan\b", r"\binf\b", "None", r"e[+-]\d", "  ", r"\.\.", "{", r"-\d", " ,", "_$"):
            assert not re.search(wrong, text.replace("mb_max", "")), text
    for text in filter(None, sentences):
        assert re.fullmatch(r"[A-Z0-9].*\.", text), text
    assert [one.code for one in advice] == [code for code in CODES if code in {one.code for one in advice}]
    assert limited_by(made) in ("nothing", "workers", "goal", "cap")
