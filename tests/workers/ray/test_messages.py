"""The messages between gateway and helper."""

import msgspec
import pytest
from hypothesis import given

from tests.workers.messages import any_of
from uncork_workers.ray.messages import (
    Command,
    Event,
    Kill,
    Started,
    decode_command,
    decode_event,
    encode,
)


@given(command=any_of(Command))
def test_commands_are_lines(command: Command) -> None:
    line = encode(command)
    assert line.count(b"\n") == 1
    assert decode_command(line) == command


@given(event=any_of(Event))
def test_events_are_lines(event: Event) -> None:
    line = encode(event)
    assert line.count(b"\n") == 1
    assert decode_event(line) == event


def test_neither_side_accepts_messages_of_its_own() -> None:
    with pytest.raises(msgspec.MsgspecError):
        decode_command(encode(Started(1, "n")))
    with pytest.raises(msgspec.MsgspecError):
        decode_event(encode(Kill(1)))
