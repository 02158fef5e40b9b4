"""The messages between gateway and helper."""

import msgspec
import pytest

from uncork_workers.ray.messages import (
    Attach,
    Code,
    Command,
    Connect,
    Connected,
    Ended,
    Event,
    Kill,
    Launch,
    Refused,
    Started,
    Waiting,
    decode_command,
    decode_event,
    encode,
)


@pytest.mark.parametrize(
    "command",
    [
        Connect("ray://head:10001", "gateway"),
        Launch(1, ["--a", "b\nc"], {"X": "ü"}, {"CPU": 0.5}, Code("digest", "/archive.zip")),
        Launch(1, [], {}, {}),
        Attach(1, {"GPU": 1.0}),
        Kill(1),
    ],
)
def test_commands_are_lines(command: Command) -> None:
    line = encode(command)
    assert line.count(b"\n") == 1
    assert decode_command(line) == command


@pytest.mark.parametrize(
    "event",
    [Connected("10.0.0.1", ["x"]), Refused("no\nhead"), Started(1, "n"), Ended(1, -9), Waiting([1], "x")],
)
def test_events_are_lines(event: Event) -> None:
    line = encode(event)
    assert line.count(b"\n") == 1
    assert decode_event(line) == event


def test_neither_side_accepts_messages_of_its_own() -> None:
    with pytest.raises(msgspec.MsgspecError):
        decode_command(encode(Started(1, "n")))
    with pytest.raises(msgspec.MsgspecError):
        decode_event(encode(Kill(1)))
