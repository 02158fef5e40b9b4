"""Dialects of gRPC for an API that takes JSON, or arrays."""

from typing import Any, TypeVar

from uncork_gateway.codecs import make_codec
from uncork_gateway.dialects.inputs import ANY_INPUTS, Inputs
from uncork_gateway.grpc.dialects.predict import Predict
from uncork_gateway.grpc.dialects.v2 import V2Grpc

D = TypeVar("D", Predict, V2Grpc)


def dialect_of(
    kind: type[D],
    *,
    shape: list[int | None] | None = None,
    cost: float | str | None = None,
    **others: Any,
) -> D:
    """The dialect of an API that takes JSON, or arrays of a shape."""
    codec = make_codec({"kind": "json"} if shape is None else {"kind": "ndarray", "shape": shape}, cost)
    inputs = ANY_INPUTS if shape is None else Inputs("values")
    return kind(codec, **{"model": "m", "inputs": inputs, "saw": lambda outputs: None, **others})
