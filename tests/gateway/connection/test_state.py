"""The transition tables of a connection."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from uncork_gateway.connection import state
from uncork_gateway.connection.state import READING, State

EVENTS: dict[str, Mapping[State, State]] = {
    name: table
    for name, table in vars(state).items()
    if isinstance(table, Mapping) and not name.startswith("_")
}


def test_every_state_can_be_reached() -> None:
    reached = {State.IDLE}
    for _ in State:
        reached |= {table[one] for table in EVENTS.values() for one in reached if one in table}
    assert reached == set(State)


@pytest.mark.parametrize("event", ["CLIENT_ENDS", "HANG_UP", "CLOSE"])
def test_what_the_transport_or_a_reply_causes_can_happen_in_every_state(event: str) -> None:
    assert set(EVENTS[event]) == set(State)


@pytest.mark.parametrize("event", EVENTS)
def test_a_connection_that_stopped_reading_never_reads_again(event: str) -> None:
    after = EVENTS[event]
    assert not any(after[one] in READING for one in set(State) - READING if one in after)
    assert after.get(State.CLOSED, State.CLOSED) is State.CLOSED


def test_parsing_goes_round() -> None:
    one = State.IDLE
    for event in ("MESSAGE_BEGINS", "HEAD_COMPLETE", "MESSAGE_COMPLETE"):
        one = EVENTS[event][one]
    assert one is State.IDLE
