"""Codecs built from the descriptions of adapters."""

from typing import Any

import pytest

from uncork_gateway.codecs import make_codec
from uncork_gateway.codecs.dataframe import DataFrameCodec
from uncork_gateway.codecs.json import JsonCodec
from uncork_gateway.codecs.ndarray import NdArrayCodec
from uncork_gateway.codecs.raw import RawCodec
from uncork_gateway.codecs.text import TextCodec
from uncork_workers.definition import adapters
from uncork_workers.definition.adapters import DataFrame, File, Json, NdArray, Text

ADAPTERS = {
    "json": (Json(), JsonCodec),
    "ndarray": (NdArray(shape=(2, None)), NdArrayCodec),
    "dataframe": (DataFrame(dtypes={"a": "int64"}), DataFrameCodec),
    "text": (Text(), TextCodec),
    "raw": (File(), RawCodec),
}


def test_every_kind_of_adapter_has_its_codec() -> None:
    exported = [getattr(adapters, name) for name in adapters.__all__]
    kinds = {one.kind for one in exported if issubclass(one, adapters.Adapter) and hasattr(one, "kind")}
    assert kinds == ADAPTERS.keys()
    for adapter, codec in ADAPTERS.values():
        made = make_codec(adapter.describe())
        assert type(made) is codec
        assert bool(made.summary) == (adapter.kind != "raw")  # any file needs no explanation


@pytest.mark.parametrize("description", [{}, {"kind": "image"}, {"kind": "ndarray"}, {"shape": [1]}])
def test_an_unknown_kind_is_refused(description: dict[str, Any]) -> None:
    """A newer worker may have kinds that this gateway lacks."""
    with pytest.raises(ValueError, match="there is no codec for"):
        make_codec(description)
