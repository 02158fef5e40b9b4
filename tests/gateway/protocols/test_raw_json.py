"""JSON split into the texts of its parts."""

import sys
from collections.abc import Callable

import pytest
from msgspec import Raw

from uncork_gateway.codecs import make_codec
from uncork_gateway.codecs.ndarray import NdArrayCodec
from uncork_gateway.dialects import Rest
from uncork_gateway.dialects.inputs import Inputs
from uncork_gateway.errors import BadRequest
from uncork_gateway.protocols.raw_json import Malformed, elements, members

REST = Rest(make_codec({"kind": "json"}), inputs=Inputs("objects", texts=["a"]), kserve=True)
READERS: dict[str, Callable[[bytes], object]] = {
    "ndarray": lambda value: NdArrayCodec(shape=[None]).decode(b"[[1,%b]]" % value),
    "rest": lambda value: REST.read(b'{"instances":[{"a":{"b64":"","b":%b}}]}' % value, ()),
}


@pytest.mark.parametrize("kind", READERS)
def test_json_of_any_depth_is_read_or_refused(kind: str) -> None:
    """When a part of a body is read again, less of the stack may be left than for the whole."""
    depths = range(1, sys.getrecursionlimit())
    refused: list[str] = []
    for depth in depths:
        try:
            READERS[kind](b"[" * depth + b"]" * depth)
        except BadRequest as error:
            refused.append(str(error))
    assert 0 < len(refused) < len(depths)
    assert all("nested too deeply" in each for each in refused)


@pytest.mark.parametrize("value", [b"1", b"NaN"])
def test_parts_that_are_nested_too_deeply_are_malformed(value: bytes) -> None:
    deep = b"[" * 100_000 + b"]" * 100_000
    with pytest.raises(Malformed, match="nested too deeply"):
        members(Raw(b'{"a":%b,"b":%b}' % (value, deep)))
    with pytest.raises(Malformed, match="nested too deeply"):
        elements(Raw(b"[%b,%b]" % (value, deep)))
