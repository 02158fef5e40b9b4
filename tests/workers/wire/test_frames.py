"""The frames between gateway and worker."""

from collections.abc import Iterable
from typing import get_args

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.workers.json_values import SCALARS
from uncork_workers.wire.frames import (
    MAX_HEADER_BYTES,
    MAX_PAYLOAD_BYTES,
    Frame,
    FrameDecoder,
    FrameError,
    encode_frame,
    split_payload,
)
from uncork_workers.wire.messages import (
    AnswerHead,
    Batch,
    Cancel,
    Failed,
    Form,
    Hello,
    ListForm,
    Message,
    Meta,
    Piece,
    RawForm,
    Ready,
    Reply,
    TableForm,
    TensorForm,
    Wanted,
    WarmUp,
    compact_forms,
    expand_forms,
)
from uncork_workers.wire.schema import ApiDescription, ApiSettings, ServiceDescription

NUMBERS = st.integers(0, 2**63 - 1)
LISTS = st.lists(NUMBERS, max_size=5)
TIMES = st.floats(allow_nan=False)
COSTS = st.floats(0, 1e18, exclude_min=True)
PAIRS = st.lists(st.tuples(st.text(), st.text()), max_size=2)
METAS = st.builds(Meta, content_type=st.text(), query=st.text(), headers=PAIRS)
HEADS = st.builds(AnswerHead, status=st.integers(200, 599), content_type=st.text(), headers=PAIRS)
SETTINGS = st.builds(
    ApiSettings,
    mb_max_latency=TIMES,
    mb_max_batch_size=NUMBERS,
    policy=st.text(),
    timeout=TIMES,
    idempotent=st.booleans(),
    cost=st.none() | st.text() | st.floats(allow_nan=False),
)
INPUTS = st.dictionaries(st.text(), SCALARS.filter(lambda value: not isinstance(value, int)) | NUMBERS)
APIS = st.builds(
    ApiDescription,
    name=st.text(),
    route=st.text(),
    input=INPUTS,
    settings=SETTINGS,
    doc=st.text(),
    streams=st.booleans(),
)
SERVICES = st.builds(ServiceDescription, name=st.text(), apis=st.lists(APIS, max_size=2))
SHAPES = LISTS.map(tuple)
TENSORS = st.builds(TensorForm, datatype=st.text(), shape=SHAPES)
MESSAGES: st.SearchStrategy[Message] = st.one_of(
    st.builds(Hello, index=NUMBERS, pid=NUMBERS, service=SERVICES, files=st.lists(st.text(), max_size=2)),
    st.builds(WarmUp, api=st.text(), rows=st.integers(1, 2**31)),
    st.builds(Ready, files=st.lists(st.text(), max_size=2)),
    st.builds(
        Failed,
        index=NUMBERS,
        stage=st.sampled_from(["load", "setup"]),
        message=st.text(),
        traceback=st.text(),
    ),
    st.builds(
        Batch,
        batch=NUMBERS,
        api=st.text(),
        limit_rows=NUMBERS,
        lengths=LISTS,
        rows=LISTS,
        costs=st.none() | st.lists(COSTS, max_size=5),
        allowed_lengths=st.lists(COSTS, max_size=3).map(tuple),
        idempotent=st.booleans(),
        forms=st.lists(
            st.none() | TENSORS | st.builds(TableForm, header=st.text()) | st.just(RawForm()), max_size=3
        ).map(tuple),
        metas=st.none() | st.lists(METAS, max_size=2),
        accept=st.text(max_size=5),
        raw=st.none() | st.lists(st.sampled_from(get_args(Wanted)), max_size=3),
    ),
    st.builds(
        Reply,
        batch=NUMBERS,
        worked=st.booleans(),
        seconds=st.floats(0, 1e9),
        statuses=st.lists(st.integers(200, 599), max_size=5),
        lengths=LISTS,
        chunks=st.lists(st.tuples(COSTS, st.floats(0, 1e9)), max_size=3),
        forms=st.lists(
            st.none() | TENSORS | st.builds(ListForm, datatype=st.text(), shape=SHAPES), max_size=3
        ).map(tuple),
        content_types=st.none() | st.lists(st.text(), max_size=2),
        headers=st.none() | st.lists(PAIRS, max_size=2),
    ),
    st.builds(Piece, batch=NUMBERS, head=st.none() | HEADS),
    st.builds(Cancel, batch=NUMBERS),
)
FRAMES = st.builds(Frame, MESSAGES, st.binary(max_size=50))
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


@given(forms=st.lists(st.none() | st.sampled_from([RawForm(), TensorForm("INT8", ())]), min_size=1))
def test_the_forms_of_bodies_are_given_once_if_they_are_alike(forms: list[Form]) -> None:
    given = compact_forms(forms)

    assert len(given) == (1 if len(set(forms)) == 1 else len(forms))
    assert list(expand_forms(given, len(forms))) == forms


@given(frame=FRAMES)
def test_a_frame_is_given_with_its_last_byte(frame: Frame) -> None:
    sent = wire([frame])
    decoder = FrameDecoder()

    early = [given for at in range(len(sent) - 1) for given in decoder.feed(sent[at : at + 1])]
    last = list(decoder.feed(sent[-1:]))

    assert early == []
    assert last == [frame]


def test_the_first_frames_are_given_although_a_later_one_is_broken() -> None:
    decoder = FrameDecoder()
    given = decoder.feed(wire([Frame(Ready(), b"")]) + b"\x00\x00\x00\x01\x00\x00\x00\x00\xc0")

    assert next(given) == Frame(Ready(), b"")
    with pytest.raises(FrameError, match="invalid header"):
        next(given)


def test_the_payload_is_the_bodies_end_to_end() -> None:
    frame = encode_frame(Ready(), [b"ab", b"", b"c"])

    assert list(FrameDecoder().feed(frame)) == [Frame(Ready(), b"abc")]


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
    ],
    ids=["nothing", "nil", "no tag", "unknown tag", "fields missing", "cut off", "too long", "wrong type"],
)
def test_what_is_not_a_known_header_is_refused(header: bytes) -> None:
    with pytest.raises(FrameError, match="invalid header"):
        list(FrameDecoder().feed(framed(header)))


def test_text_that_is_not_utf8_is_refused() -> None:
    header = encode_frame(HELLO)[8:].replace(b"Digits", b"Dig\xff\xffs")

    with pytest.raises(FrameError, match="invalid header"):
        list(FrameDecoder().feed(framed(header)))


def test_nesting_without_end_is_refused() -> None:
    header = encode_frame(HELLO)[8:].replace(b"\xa7ndarray", b"\x91" * 100_000 + b"\xc0")

    with pytest.raises(FrameError, match="invalid header"):
        list(FrameDecoder().feed(framed(header)))


@given(garbage=st.binary(max_size=200))
def test_garbage_gives_nothing_but_frames_and_frame_errors(garbage: bytes) -> None:
    _decode_all(garbage)


@given(frames=st.lists(FRAMES, min_size=1, max_size=2), data=st.data())
def test_mutated_frames_give_nothing_but_frames_and_frame_errors(
    frames: list[Frame], data: st.DataObject
) -> None:
    sent = bytearray(wire(frames))
    for _ in range(data.draw(st.integers(1, 4))):
        sent[data.draw(st.integers(8, len(sent) - 1))] = data.draw(st.integers(0, 255))

    _decode_all(bytes(sent))


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


def _decode_all(data: bytes) -> None:
    try:
        frames = list(FrameDecoder().feed(data))
    except FrameError:
        return
    assert all(isinstance(frame.message, Message) for frame in frames)
