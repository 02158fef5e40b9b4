"""Random figures for property tests."""

from __future__ import annotations

from typing import get_args

from hypothesis import strategies as st

from tests.gateway.pages.status.staged import FAILURE, RUNNING, figures, recent, stats, work
from uncork_dispatcher import POLICIES, Estimate, Holding, HoldReason, Reason
from uncork_dispatcher.learning.measures import Measure, Padding
from uncork_gateway.errors import RefusalReason
from uncork_gateway.pages.status.figures import Figures

NOT_READY = "no worker is ready: worker 0 was killed by SIGKILL"
RELEASES = get_args(Reason)
_HOLDS = get_args(HoldReason)
_SHEDS = [reason for reason in get_args(RefusalReason) if reason != "too_many_connections"]
_MEASURES = get_args(Measure)
_POLICIES = (*POLICIES, "fixed:5", "fixed:5:8")

positive = st.floats(0, 1e6, allow_nan=False)
share = st.floats(0, 1)


@st.composite
def any_figures(draw: st.DrawFn) -> Figures:
    limit = draw(st.integers(1, 10_000))
    held = draw(st.integers(0, 100))
    workers = draw(st.integers(0, 9))
    running = [
        RUNNING._replace(api=draw(st.sampled_from(["predict", "slow"])), left_s=draw(st.floats(-100, 100)))
        for _ in range(draw(st.integers(0, workers)))
    ]
    size = draw(st.one_of(st.none(), st.tuples(positive, positive)))
    hold = st.builds(Holding, st.one_of(positive, st.just(float("inf"))), st.sampled_from(_HOLDS))
    padding = st.builds(
        Padding, st.sampled_from(_MEASURES), st.floats(0, 0.99), st.one_of(positive, st.just(float("inf")))
    )
    return figures(
        stats(
            {"max_batch_rows": limit, "policy": draw(st.sampled_from(_POLICIES))},
            limit_rows=draw(st.sampled_from([1, limit])),
            rate_rows=draw(positive),
            smallest_rows=draw(positive),
            known_rows=size,
            slope_error_s=draw(st.one_of(positive, st.just(float("inf")))),
            queued_requests=held,
            queued_rows=float(held),
            padding=draw(st.one_of(st.none(), padding)),
            holding=draw(st.one_of(st.none(), hold)),
        ),
        recent=recent(
            batches=draw(st.integers(0, 30)),
            each=draw(st.integers(1, 4)),
            rows=draw(st.integers(1, 100)),
            reason=draw(st.sampled_from(RELEASES)),
            sheds=draw(st.dictionaries(st.sampled_from(_SHEDS), st.integers(1, 50))),
            statuses=draw(st.dictionaries(st.sampled_from([200, 400, 499, 503]), st.integers(1, 50))),
            errors=draw(st.dictionaries(st.sampled_from([500, 502, 503, 504, 599]), st.integers(1, 50))),
            rate=draw(positive),
            seconds=draw(st.floats(0, 33)),
            estimate=draw(
                st.one_of(st.none(), st.builds(Estimate, positive, positive, st.floats(0, 10), positive))
            ),
            queued_s=draw(st.floats(0, 100)),
            ran_s=draw(st.floats(0, 100)),
            took_s=draw(st.floats(0, 100)),
        ),
        work=work(workers, running=running),
        goal_s=draw(st.one_of(st.none(), st.floats(1e-6, 1e4))),
        weighs=draw(st.booleans()),
        streams=draw(st.booleans()),
        others_share=draw(share),
        busiest_other=draw(st.sampled_from([None, "slow"])),
        draining=draw(st.booleans()),
        not_ready_reason=NOT_READY,
        failure=draw(st.sampled_from([None, FAILURE])),
    )
