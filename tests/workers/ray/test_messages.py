"""The messages between gateway and helper."""

import msgspec
import pytest
from hypothesis import given

from tests.workers.messages import any_of
from uncork_workers.ray.messages import (
    Command,
    Event,
    decode_command,
    decode_event,
    encode,
)


@given(command=any_of(Command), event=any_of(Event))
def test_messages_are_lines_of_one_side(command: Command, event: Event) -> None:
    for line in (encode(command), encode(event)):
        assert line.count(b"\n") == 1
    assert (decode_command(encode(command)), decode_event(encode(event))) == (command, event)
    with pytest.raises(msgspec.MsgspecError):
        decode_command(encode(event))
    with pytest.raises(msgspec.MsgspecError):
        decode_event(encode(command))
