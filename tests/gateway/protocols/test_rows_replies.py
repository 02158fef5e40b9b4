"""KServe V1 and TensorFlow Serving REST: replies that are split, joined, rejected."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.gateway.codecs.bodies import mutated
from tests.gateway.protocols.rows_stage import GOOD_BODIES, fields
from uncork_gateway.protocols.rows import RowsWire, parse_rows
from uncork_gateway.protocols.rows_replies import RowsReply
from uncork_gateway.protocols.wire import Content, WrongReply

V1 = RowsWire(add_batch_id=True)
TFS = RowsWire(add_batch_id=False)
TWO_AND_ONE = [parse_rows(b'{"instances": [1, 2]}'), parse_rows(b'{"instances": [3]}')]


def test_a_reply_of_nesting_without_end_is_wrong() -> None:
    with pytest.raises(WrongReply, match="the response is nested too deeply"):
        TFS.split(Content(b'{"predictions": ' + b"[" * 1_000_000), TWO_AND_ONE)


REPLIES = GOOD_BODIES.map(
    lambda body: body.replace(b"instances", b"predictions").replace(b"inputs", b"outputs")
)


@given(reply=st.binary(max_size=30) | mutated(REPLIES))
def test_any_reply_is_wrong_or_dealt_out(reply: bytes) -> None:
    try:
        replies = TFS.split(Content(reply), TWO_AND_ONE)
    except WrongReply:
        return
    assert len(replies) == 2
    assert all(fields(TFS.render(each, TWO_AND_ONE[0], batch_id="b").body) for each in replies)


def render(replies: Sequence[RowsReply], wire: RowsWire = TFS) -> list[bytes]:
    """Return the answers as compact JSON."""
    return [wire.render(reply, TWO_AND_ONE[0], batch_id='"1"').body for reply in replies]


def test_a_value_for_all_is_given_to_all() -> None:
    """This applies to a list of one beside lists with a value per row, and to members that are no lists."""
    reply = b'{"outputs": {"y": [1,2,3], "z": [0], "\\u00e9": [4]}, "n": [ 1 ], "e":[7,8,9],"s":{"t":[1, 2]}}'

    assert render(TFS.split(Content(reply), TWO_AND_ONE)) == [
        '{"outputs":{"y":[1,2],"z":[0],"é":[4]},"n":[ 1 ],"e":[7,8],"s":{"t":[1, 2]}}'.encode(),
        '{"outputs":{"y":[3],"z":[0],"é":[4]},"n":[ 1 ],"e":[9],"s":{"t":[1, 2]}}'.encode(),
    ]


@pytest.mark.parametrize(
    "reply",
    [
        b'{"outputs": ["of alice"]}',
        b'{"outputs": {"y": ["of alice"]}}',
        b'{"outputs": {"y": ["of alice"], "z": [1]}}',
        b'{"outputs": {"y": ["of alice"]}, "seconds": [1, 2, 3]}',
        b'{"outputs": {}}',
        b'{"predictions": [1, 2, 3], "explanations": ["of alice", "of bob"]}',
        b'{"predictions": [1, 2, 3], "warnings": []}',
        b'{"predictions": [1, 2, 3], "outputs": "of alice"}',
    ],
)
def test_a_value_that_may_be_that_of_one_request_is_given_to_none(reply: bytes) -> None:
    """A server that answers only for the first row must not give its answer to all."""
    with pytest.raises(WrongReply):
        TFS.split(Content(reply), TWO_AND_ONE)
    assert TFS.split(Content(reply.replace(b"[1, 2, 3]", b"[3]")), TWO_AND_ONE[1:])


@pytest.mark.parametrize("outputs", [b"7", b"[1,2,3]", b"[]", b'{"y":[1,2,3],"z":null}', b'{"b64":"AQ=="}'])
def test_a_request_that_was_alone_gets_all(outputs: bytes) -> None:
    """The reply belongs to one request, so its shape is not checked."""
    reply = b'{"outputs":' + outputs + b"}"

    assert render(TFS.split(Content(reply), TWO_AND_ONE[1:])) == [reply]
    with pytest.raises(WrongReply, match="expected 1 predictions, got 2"):
        TFS.split(Content(b'{"predictions": [1, 2]}'), TWO_AND_ONE[1:])


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (b'{"predictions": [1, 2], "v": 1}', b'{"predictions": [3], "v": 1.0}'),
        (b'{"predictions": [1, 2], "v": 1}', b'{"predictions": [3]}'),
        (b'{"outputs": {"y": [1, 2], "z": [0]}}', b'{"outputs": {"y": [3], "z": [1]}}'),
        (b'{"outputs": {"y": [1, 2]}}', b'{"outputs": {"z": [3]}}'),
        (b'{"outputs": {"y": [1, 2]}}', b'{"outputs": [3]}'),
    ],
)
def test_parts_of_a_reply_that_do_not_fit_together_are_wrong(one: bytes, other: bytes) -> None:
    """Values that are not split by rows must be equal in all parts."""
    parts_of_it = [
        TFS.split(Content(reply), [request])[0]
        for reply, request in zip((one, other), TWO_AND_ONE, strict=True)
    ]
    with pytest.raises(WrongReply, match="the responses to the parts of a request"):
        TFS.join(parts_of_it)


def test_the_batch_id_of_a_batcher_behind_us_gives_way_to_ours() -> None:
    """The server's batch id is dropped only where the proxy adds one."""
    reply = Content(b'{"message": "", "batchId": "theirs", "predictions": [1, 2, 3]}')

    assert render(V1.split(reply, TWO_AND_ONE), V1)[0] == (
        b'{"message":"","batchId":"\\"1\\"","predictions":[1,2]}'
    )
    assert (
        render(TFS.split(reply, TWO_AND_ONE))[0] == b'{"message":"","batchId":"theirs","predictions":[1,2]}'
    )
