"""Nested JSON lists of numbers: one row, or many rows with the leading axis."""

import re
from collections.abc import Sequence
from typing import NoReturn

import msgspec
from msgspec.structs import replace

from uncork_dispatcher.wording import plural
from uncork_gateway.codecs.base import Marshalled, check_weighed, of_tensor
from uncork_gateway.codecs.cost import NO_COST, Weigh, unweighed
from uncork_gateway.codecs.json import ANY_JSON
from uncork_gateway.codecs.npy import decode_npy
from uncork_gateway.errors import BadRequest
from uncork_gateway.protocols.decoding import decode_json
from uncork_gateway.protocols.limits import DEFAULT_LIMITS, Limits
from uncork_gateway.protocols.raw_json import SPACE, elements, is_list
from uncork_gateway.protocols.tensors import Tensor
from uncork_workers.wire.schema import JSON, NPY

_MOST_DEPTH = 64
# The end of the body, a list or a space.
_MAY_OPEN = frozenset((b"", b"[", b" ", b"\t", b"\r", b"\n"))
_KINDS = {b"{": "an object", b'"': "a string", b"t": "true", b"f": "false", b"n": "null"}
_rows_decoder = msgspec.json.Decoder(list[msgspec.Raw])


class NdArrayCodec:
    """Counts rows; the depth of nesting separates one row from many. The worker checks values."""

    accepts = (JSON, NPY)
    summary = "One row, or a list of rows, as JSON or as a NumPy file (`.npy`)."
    one_or_many = True

    def __init__(
        self, weigh: Weigh = unweighed, *, shape: Sequence[int | None], limits: Limits = DEFAULT_LIMITS
    ) -> None:
        self._weigh = weigh
        self.limits = limits
        self._shape = tuple(shape)
        self._has_open_axes = None in self._shape
        self._opening = _opening(len(self._shape) + 1)
        self._opens_row = b"[" * len(self._shape)

    def decode(self, body: bytes, media_type: str = JSON) -> Marshalled:
        """Count rows. The batch key is their lengths along the axes that the API leaves open."""
        if media_type == NPY:
            tensor, single = decode_npy(body, row_axes=len(self._shape))
            self.limits.check_rows(tensor.shape[0])
            return replace(self.marshal_tensor(tensor), single=single)
        depth = self._depth_of(body)
        if depth == len(self._shape):
            decode_json(ANY_JSON, body, "JSON")
            key = self._key(body) if self._has_open_axes else None
            cost = NO_COST if self._weigh is unweighed else self._weigh([body.strip(SPACE)])
            return Marshalled(body, rows=1, key=key, cost=cost)
        if depth != len(self._shape) + 1:
            decode_json(ANY_JSON, body, "JSON")
            got = _kind(body, _depth(_opening(_MOST_DEPTH), body))
            raise BadRequest(f"expected {_row(self._shape)}, or a list of such rows; got {got}")
        self.limits.check_items(body)
        rows = decode_json(_rows_decoder, body, "a list of rows")
        if not rows:
            raise BadRequest("the body has no rows")
        return self._from_rows(body.strip(SPACE)[1:-1], rows)

    def _depth_of(self, body: bytes) -> int:
        """Return the number of lists that open before the first value, up to two more than a row has."""
        opens = self._opens_row
        axes = len(opens)
        # Most requests are one row, without spaces.
        if body[:axes] == opens and body[axes : axes + 1] not in _MAY_OPEN:
            return axes
        return _depth(self._opening, body)

    def marshal(self, rows: Sequence[bytes | msgspec.Raw]) -> Marshalled:
        return self._from_rows(b",".join(rows), rows)

    def _from_rows(self, body: bytes, rows: Sequence[bytes | msgspec.Raw]) -> Marshalled:
        key = self._key(rows[0]) if self._has_open_axes else None
        return Marshalled(body, len(rows), key, single=False, cost=self._weigh(rows))

    def marshal_tensor(self, tensor: Tensor) -> Marshalled:
        """Check the shape. The batch key is the rows' lengths along the axes that the API leaves open."""
        wanted, got = self._shape, tensor.shape[1:]
        if len(got) != len(wanted) or any(
            length not in (None, given) for length, given in zip(wanted, got, strict=True)
        ):
            raise BadRequest(f"a row must have shape {_shown(wanted)}, got rows of shape {_shown(got)}")
        open_lengths = tuple([length for each, length in zip(wanted, got, strict=True) if each is None])
        check_weighed([tensor], self._weigh, self.limits)
        return of_tensor(tensor, self._weigh, key=open_lengths or None)

    def marshal_columns(self, tensors: Sequence[Tensor]) -> NoReturn:
        """Reject rows that are objects."""
        raise BadRequest(f"a row must be {_row(self._shape)}, got an object")

    def _key(self, row: bytes | msgspec.Raw) -> tuple[int, ...]:
        """Return a row's lengths along open axes, as the batch key."""
        self.limits.check_all_values(row)
        lengths: list[int] = []
        row = msgspec.Raw(bytes(row).strip(SPACE))
        for length in self._shape:
            if not is_list(row):
                raise BadRequest(f"the first row must be {_row(self._shape)}")
            items = elements(row)
            if length is None:
                lengths.append(len(items))
            if not items:
                raise BadRequest("the first row has no values")
            row = items[0]
        return tuple(lengths)


def _shown(shape: Sequence[int | None]) -> str:
    return repr(tuple(shape)).replace("None", "any")


def _row(shape: Sequence[int | None]) -> str:
    """Describe the expected row in an error message."""
    if not shape:
        return "a number"
    if len(shape) > 1:
        return f"nested lists of shape {_shown(shape)}"
    return f"a list of {'numbers' if shape[0] is None else plural(shape[0], 'number')}"


def _kind(body: bytes, depth: int) -> str:
    """Describe a JSON body that begins with ``depth`` lists, for an error message."""
    if depth:
        return "a list" if depth == 1 else f"lists nested {depth} deep"
    return _KINDS.get(body.strip(SPACE)[:1], "a number")


def _opening(most: int) -> re.Pattern[bytes]:
    """Return a pattern of the lists that open before the first value; at most ``most + 1``."""
    return re.compile(rb"(?:[ \t\r\n]*\[){0,%d}" % (most + 1))


def _depth(opening: re.Pattern[bytes], body: bytes) -> int:
    """Return the number of lists that open before the first value."""
    found = opening.match(body)
    return found[0].count(b"[") if found else 0
