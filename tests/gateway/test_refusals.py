"""Messages to clients whose bodies, or the replies to them, are refused: the cases are in ``refusals.txt``.

Each is an expression with the names of this module, and what it raises. ``Unmergeable`` goes to the server
alone.
"""

import json
from pathlib import Path

import numpy as np
import pytest

from tests.expected import check_messages
from tests.gateway.codecs import test_dataframe, test_groups, test_npy, test_text
from tests.gateway.codecs.test_cost import BY_FIELD
from tests.gateway.dialects import test_v2_dialect
from tests.gateway.protocols import test_rows, test_rows_replies, test_v2, test_v2_replies, v2_bodies
from tests.gateway.protocols.v2_bodies import HEADER
from tests.gateway.requests.test_classes import CLASSES
from uncork_gateway.auth import read_origin
from uncork_gateway.backends.model_servers.server import read_addresses
from uncork_gateway.codecs.ndarray import NdArrayCodec
from uncork_gateway.codecs.npy import decode_npy
from uncork_gateway.codecs.text import PLAIN, to_utf8
from uncork_gateway.errors import BadRequest
from uncork_gateway.protocols.tensors import Tensor
from uncork_gateway.protocols.v2_replies import split
from uncork_gateway.protocols.wire import Content, Unmergeable, WrongReply
from uncork_workers.definition.adapters import Json
from uncork_workers.wire.schema import JSON


def v1(body: bytes) -> None:
    test_rows.V1.parse(Content(body))


def v2(sent: bytes | Content) -> None:
    test_v2.WIRE.parse(Content(sent) if isinstance(sent, bytes) else sent)


def with_header(text: bytes, blocks: bytes, header: bytes | None = None) -> Content:
    """Return a body with bytes after the JSON."""
    return Content(text + blocks, ((HEADER, b"%d" % len(text) if header is None else header),))


def binary_x(size: object, shape: str = "[2]", datatype: str = "INT16") -> bytes:
    """Return the JSON of a request with one binary tensor."""
    parameters = f'"parameters":{{"binary_data_size":{size}}}'
    return f'{{"inputs":[{{"name":"x","shape":{shape},"datatype":"{datatype}",{parameters}}}]}}'.encode()


def v1_reply(body: bytes) -> None:
    test_rows_replies.TFS.split(Content(body), test_rows_replies.TWO_AND_ONE)


def v2_reply(body: str) -> None:
    split(Content(body.encode()), [1, 1])


def table(body: bytes) -> None:
    test_dataframe.ANY.decode(body, "text/csv")


def rows(body: bytes) -> None:
    test_dataframe.ANY.decode(body)


def ab(body: bytes) -> None:
    test_dataframe.AB.decode(body, "text/csv" if body.endswith(b"\n") else "application/json")


def grouped(*bodies: bytes) -> None:
    test_groups.complete(test_groups.codec_for(Json()).marshal(list(bodies)))


def grouped_body(body: bytes) -> None:
    test_groups.complete(test_groups.codec_for(Json()).decode(body))


def grouped_by(group_by: str, parameters: object) -> None:
    payload = test_groups.codec_for(Json()).decode(b'{"g":1}')
    test_groups.complete(payload, group_by, parameters=parameters)


def text(body: bytes, content_type: str = JSON) -> None:
    test_text.CODEC.decode(body, content_type)


def in_charset(body: bytes, charset: str) -> None:
    to_utf8(body, f"text/plain; charset={charset}")


def model(sent: Content) -> None:
    test_v2_dialect.read(test_v2_dialect.dialect(), sent)


def priority(level: object, named: bool | None = None) -> None:
    CLASSES.is_bulk(named, json.dumps({"priority": level}).encode())


def npy(body: bytes) -> None:
    decode_npy(body, row_axes=1)


def array(body: bytes, *shape: int | None) -> None:
    NdArrayCodec(shape=shape).decode(body)


def tensor(rows_of: tuple[int, ...], *shape: int | None) -> None:
    sent = Tensor(name="x", datatype="INT8", shape=rows_of, form="binary", data=bytes(int(np.prod(rows_of))))
    NdArrayCodec(shape=shape).marshal_tensor(sent)


def weighed(body: bytes) -> None:
    BY_FIELD.decode(body)


OF_SERVERS = {"read_addresses": read_addresses, "read_origin": read_origin}
OF_TESTS = {
    **vars(test_npy),
    **vars(v2_bodies),
    **vars(test_v2_replies),
    **vars(test_v2_dialect),
    **vars(test_v2),
}
NAMES = {**OF_TESTS, **globals(), **OF_SERVERS, "PLAIN": PLAIN}


def said(expression: str) -> str:
    with pytest.raises((BadRequest, Unmergeable, WrongReply, ValueError)) as caught:
        eval(expression, NAMES)
    return f"{caught.type.__name__}: {' '.join(str(caught.value).split())}"


def test_what_is_refused() -> None:
    check_messages(Path(__file__).with_name("refusals.txt"), said)
