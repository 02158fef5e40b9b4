"""Literal views for the tests of policies."""

from __future__ import annotations

from uncork_dispatcher.learning.estimator import Estimate
from uncork_dispatcher.learning.returns import Returns
from uncork_dispatcher.policies.base import View

_PLAIN = View(
    now=10.0,
    rows=1,
    requests=1,
    oldest=10.0,
    newest=10.0,
    deadline=20.0,
    goal_s=10.0,
    patience_s=10.0,
    full=False,
    idle_workers=1,
    busy_until=(),
    running_rows=lambda _: 1.0,
    estimate=Estimate(intercept_s=1.0, slope_s=0.0, spread=0.0, earned_rows=100.0),
    slowdown=1.0,
    new_client_rate=0.0,
    load_rate=0.0,
    returns=Returns(),
    mean_rows=1.0,
    batch_rows=1,
)


def view(**changes: object) -> View:
    """One fresh request at 10 s, an idle worker, a goal 10 s away, batches of 1 s; but for ``changes``.

    All rows may share a batch, unless ``batch_rows`` is among them. Batches that run have one row each.
    """
    return _PLAIN._replace(**{"batch_rows": changes.get("rows", _PLAIN.rows), **changes})  # type: ignore[arg-type]
