"""The frames between gateway and worker."""

from collections.abc import Iterable

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.workers.messages import any_of
from uncork_workers.wire.forms import Form, RawForm, TensorForm, compact_forms, expand_forms
from uncork_workers.wire.frames import (
    MAX_HEADER_BYTES,
    MAX_PAYLOAD_BYTES,
    Frame,
    FrameDecoder,
    FrameError,
    encode_frame,
    split_payload,
)
from uncork_workers.wire.messages import Failed, Hello, Message, Ready, Reply
from uncork_workers.wire.schema import ApiDescription, ServiceDescription

FRAMES = st.builds(Frame, any_of(Message), st.binary(max_size=50))
HELLO = Hello(
    index=3,
    launch=5,
    pid=77,
    service=ServiceDescription(
        name="Digits",
        apis=[ApiDescription(name="predict", route="/predict", input={"kind": "ndarray", "shape": [None]})],
    ),
)


def wire(frames: Iterable[Frame]) -> bytes:
    return b"".join(encode_frame(message, [payload]) for message, payload in frames)


@given(frames=st.lists(FRAMES, max_size=4), data=st.data())
def test_frames_survive_the_wire_however_it_is_cut(frames: list[Frame], data: st.DataObject) -> None:
    sent = wire(frames)
    cuts = data.draw(st.lists(st.integers(0, len(sent)), max_size=6).map(sorted))
    decoder = FrameDecoder()

    received = [
        frame
        for start, end in zip([0, *cuts], [*cuts, len(sent)], strict=True)
        for frame in decoder.feed(sent[start:end])
    ]

    assert received == frames


def test_a_header_in_many_pieces_is_not_copied_for_each() -> None:
    """Quadratic work would not end here."""
    sent = wire([Frame(Failed(0, "setup", "x" * 20_000_000, ""), b"")])
    decoder = FrameDecoder()

    received = [frame for at in range(0, len(sent), 100) for frame in decoder.feed(sent[at : at + 100])]

    assert wire(received) == sent


@given(forms=st.lists(st.none() | st.sampled_from([RawForm(), TensorForm("INT8", ())]), min_size=1))
def test_the_forms_of_bodies_are_given_once_if_they_are_alike(forms: list[Form]) -> None:
    given = compact_forms(forms)

    assert len(given) == (1 if len(set(forms)) == 1 else len(forms))
    assert list(expand_forms(given, len(forms))) == forms


def test_the_first_frames_are_given_although_a_later_one_is_broken() -> None:
    decoder = FrameDecoder()
    given = decoder.feed(wire([Frame(Ready(), b"")]) + b"\x00\x00\x00\x01\x00\x00\x00\x00\xc0")

    assert next(given) == Frame(Ready(), b"")
    with pytest.raises(FrameError, match="invalid header"):
        next(given)


@pytest.mark.parametrize(
    ("lengths", "over"),
    [
        ((MAX_HEADER_BYTES + 1, 0), True),
        ((0, MAX_PAYLOAD_BYTES + 1), True),
        ((2**32 - 1, 2**32 - 1), True),
        ((MAX_HEADER_BYTES, MAX_PAYLOAD_BYTES), False),
    ],
)
def test_lengths_are_limited_before_the_bytes_come(lengths: tuple[int, int], *, over: bool) -> None:
    head = b"".join(length.to_bytes(4, "big") for length in lengths)

    if over:
        with pytest.raises(FrameError, match=f"{lengths[0]} \\+ {lengths[1]} bytes is over the limit"):
            list(FrameDecoder().feed(head))
    else:
        assert list(FrameDecoder().feed(head)) == []


def test_a_frame_that_the_other_side_would_refuse_is_not_made() -> None:
    with pytest.raises(FrameError, match="over the limit"):
        encode_frame(Failed(index=0, stage="load", message="x" * (MAX_HEADER_BYTES + 1)))


class Code(int):
    pass


def test_numbers_and_texts_of_subclasses_travel_as_plain_ones() -> None:
    """The code of a service may give them, such as a status of a class of its own."""
    reply = Reply(1, True, np.float64(0.5), [Code(404)], [Code(2)], [], content_types=[np.str_("a/b")])

    [frame] = FrameDecoder().feed(encode_frame(reply, [b"no"]))

    assert frame == Frame(reply, b"no")
    assert isinstance(frame.message, Reply)
    assert type(frame.message.statuses[0]) is int


@pytest.mark.parametrize(
    "header",
    [
        b"",
        b"\xc0",
        b"\x80",
        b"\x81\xa4type\xa5other",
        b"\x81\xa4type\xa5hello",
        b"\x82\xa4type\xa5ready\xa1",
        b"\x81\xa4type\xa5ready\x00",
        b"\x82\xa4type\xa5reply\xa5batch\xa1x",
        encode_frame(HELLO)[8:].replace(b"Digits", b"Dig\xff\xffs"),
        encode_frame(HELLO)[8:].replace(b"\xa7ndarray", b"\x91" * 100_000 + b"\xc0"),
    ],
    ids=[
        *("nothing", "nil", "no tag", "unknown tag", "fields missing", "cut off", "too long", "wrong type"),
        *("not UTF-8", "nested without end"),
    ],
)
def test_what_is_not_a_known_header_is_refused(header: bytes) -> None:
    with pytest.raises(FrameError, match="invalid header"):
        list(FrameDecoder().feed(framed(header)))


@given(frames=st.lists(FRAMES, min_size=1, max_size=2), data=st.data())
def test_mutated_frames_give_nothing_but_frames_and_frame_errors(
    frames: list[Frame], data: st.DataObject
) -> None:
    sent = bytearray(wire(frames))
    for _ in range(data.draw(st.integers(1, 4))):
        sent[data.draw(st.integers(8, len(sent) - 1))] = data.draw(st.integers(0, 255))

    try:
        received = list(FrameDecoder().feed(bytes(sent)))
    except FrameError:
        return
    assert all(isinstance(frame.message, Message) for frame in received)


@given(bodies=st.lists(st.binary(max_size=10)))
@example(bodies=[])
def test_a_payload_is_cut_into_the_bodies_it_was_made_of(bodies: list[bytes]) -> None:
    assert split_payload(b"".join(bodies), [len(body) for body in bodies]) == bodies


@pytest.mark.parametrize("lengths", [[], [2], [4], [1, 1], [1, 3], [-1, 4], [4, -1]])
def test_lengths_must_add_up_to_the_payload(lengths: list[int]) -> None:
    with pytest.raises(FrameError, match="3 bytes of payload cannot be cut"):
        split_payload(b"abc", lengths)


def framed(header: bytes) -> bytes:
    return len(header).to_bytes(4, "big") + bytes(4) + header
