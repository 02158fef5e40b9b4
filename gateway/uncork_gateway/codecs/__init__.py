"""Codecs: the gateway's side of each kind of input, one module each."""

from typing import Any

from uncork_gateway.codecs.base import Codec, Marshalled, Part, Sink
from uncork_gateway.codecs.cost import make_weigh
from uncork_gateway.codecs.dataframe import DataFrameCodec
from uncork_gateway.codecs.groups import NO_GROUPS, Grouping, RowGroups, grouping
from uncork_gateway.codecs.json import JsonCodec
from uncork_gateway.codecs.ndarray import NdArrayCodec
from uncork_gateway.codecs.raw import RawCodec
from uncork_gateway.codecs.text import TextCodec
from uncork_gateway.protocols.limits import DEFAULT_LIMITS, Limits
from uncork_workers.wire.schema import ApiDescription

__all__ = ["Codec", "Grouping", "Marshalled", "Part", "Sink", "codec_of", "grouping", "make_codec"]


def codec_of(api: ApiDescription, limits: Limits = DEFAULT_LIMITS) -> Codec:
    """Build the codec of an API.

    Raises:
        ValueError: if no codec exists for its kind of input.
    """
    return make_codec(api.input, api.settings.cost, limits, RowGroups(api.group_fields))


def make_codec(
    description: dict[str, Any],
    cost: float | str | None = None,
    limits: Limits = DEFAULT_LIMITS,
    groups: RowGroups = NO_GROUPS,
) -> Codec:
    """Build the codec that matches an adapter's description.

    Args:
        description: the adapter, as the worker describes it.
        cost: the ``cost`` of ``@api``.
        limits: limits on each request.
        groups: the fields of rows by which the API groups requests.

    Raises:
        ValueError: if no codec exists for the adapter's kind.
    """
    weigh = make_weigh(cost, limits)
    match description:
        case {"kind": "json"}:
            return JsonCodec(weigh, limits=limits, groups=groups)
        case {"kind": "ndarray", "shape": shape}:
            return NdArrayCodec(weigh, shape=shape, limits=limits)
        case {"kind": "dataframe", "columns": columns}:
            return DataFrameCodec(weigh, columns=columns, limits=limits, groups=groups)
        case {"kind": "text"}:
            return TextCodec(weigh, limits=limits)
        case {"kind": "raw", "accepts": accepts}:
            return RawCodec(weigh, accepts=accepts, limits=limits)
        case _:
            raise ValueError(f"there is no codec for {description}")
