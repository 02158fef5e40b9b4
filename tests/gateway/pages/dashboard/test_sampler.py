"""The sampling of the history, on virtual time."""

from __future__ import annotations

import asyncio
import math

import pytest

from tests.gateway.pages.status.staged import figures, recent, stats
from tests.loops import CheckedLoop
from uncork_dispatcher.learning.measures import Padding
from uncork_gateway import Gateway, GatewaySettings
from uncork_gateway.pages.dashboard.history import History, point_of
from uncork_gateway.pages.status.figures import Figures
from uncork_gateway.pages.status.service_status import StatusBuilder

pytestmark = pytest.mark.virtual_time


class Source:
    """One API, whose queue grows by a row with each look."""

    def __init__(self) -> None:
        self.looks = 0
        self.broken = False

    def figures(self, most: int) -> dict[str, Figures]:
        self.looks += 1
        if self.broken:
            raise ZeroDivisionError
        return {"predict": figures(stats(queued_rows=float(self.looks)), recent=recent(batches=100))}


async def test_an_error_costs_one_point() -> None:
    source, history = Source(), History()
    history.start(source.figures)
    source.broken = True
    await asyncio.sleep(3)
    assert "ZeroDivisionError" in CheckedLoop.problems.pop()
    source.broken = False
    await asyncio.sleep(2)
    history.stop()
    assert history.columns(asyncio.get_running_loop().time())["predict"]["queued_rows"] == [2.0]


async def test_a_point_has_the_figures_of_the_status() -> None:
    point = point_of(figures(stats(queued_rows=7.0), recent=recent(batches=99, errors={500: 1}, rows=2)))
    assert point.p50_ms == pytest.approx(15, rel=0.4)
    assert point.p50_ms <= point.p95_ms <= point.p99_ms
    assert (point.rate_rows, point.error_share, point.refused_share) == (6.6, 0.01, 0.0)
    assert point.capacity_rows > 0
    assert point.queued_rows == 7.0


async def test_what_a_few_requests_do_not_tell_is_unknown() -> None:
    """But that there were some is known, and the share that failed."""
    few = point_of(figures(recent=recent(batches=3, errors={500: 3}, seconds=2.0, estimate=None)))
    assert all(math.isnan(value) for value in (few.p50_ms, few.p95_ms, few.p99_ms, few.capacity_rows))
    assert (few.rate_rows, few.error_share) == (0.1, 0.5)

    wrong = point_of(figures(recent=recent(statuses={400: 3})))
    assert (wrong.error_share, wrong.refused_share) == (0.0, 0.0)

    none = point_of(figures(recent=recent()))
    assert (none.rate_rows, math.isnan(none.error_share), math.isnan(none.refused_share)) == (0.0, True, True)


async def test_a_point_has_the_share_of_the_padding() -> None:
    """It is unknown until lengths differ, and 0 if the model does not pad."""
    unknown, none, some = (
        point_of(figures(stats(padding=padding))).padding_share
        for padding in (None, Padding("sum", 0.0), Padding("longest", 0.3))
    )
    assert math.isnan(unknown)
    assert (none, some) == (0.0, 0.3)


async def test_a_gateway_samples_until_it_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody watches."""
    source = Source()
    monkeypatch.setattr(StatusBuilder, "figures", lambda _builder, most: source.figures(most))
    gateway = Gateway(GatewaySettings())
    await asyncio.sleep(7)
    assert source.looks == 3
    await gateway.close()
    await asyncio.sleep(10)
    assert source.looks == 3
