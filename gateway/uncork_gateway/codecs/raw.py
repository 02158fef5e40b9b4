"""Bodies that only the worker can read: they travel as they came, with their content type and headers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

import msgspec

from uncork_gateway.codecs.base import Marshalled
from uncork_gateway.codecs.cost import Weigh, unweighed
from uncork_gateway.errors import BadRequest, UnsupportedMediaType
from uncork_gateway.protocols.tensors import Tensor
from uncork_workers.wire.messages import Meta, RawForm

_ANY = "*"
_OCTETS = "application/octet-stream"


class RawCodec:
    """A body is one row, whatever it is.

    Args:
        weigh: what bodies weigh; those of no bytes weigh 1.
        accepts: media types, with ``image/*`` for all of a kind and ``*`` for all. The first is that of
            bodies that say none.
    """

    def __init__(self, weigh: Weigh = unweighed, *, accepts: Sequence[str]) -> None:
        self._weigh = weigh
        self._takes = tuple(accepts)
        # Whatever comes is to be kept with its headers; what is not taken is refused in decode.
        self.accepts = (*(one for one in accepts if one != _ANY), _ANY)

    def decode(self, body: bytes, media_type: str = _OCTETS) -> Marshalled:
        """Look at the media type only.

        Raises:
            UnsupportedMediaType: if it is not one that the api takes.
        """
        if not self._accepted(media_type):
            raise UnsupportedMediaType(
                f"content type {media_type!r} is not accepted; send {' or '.join(self._takes)}"
            )
        cost = self._weigh([body or b"\0"])
        return Marshalled(body, rows=1, cost=cost, form=RawForm(), meta=Meta(content_type=media_type))

    def marshal(self, rows: Sequence[bytes | msgspec.Raw]) -> NoReturn:
        """Other protocols have rows only."""
        raise BadRequest(f"this api takes {' or '.join(map(_name, self._takes))}, only at its own route")

    def marshal_tensor(self, tensor: Tensor) -> NoReturn:
        """Refuse the tensor: it is rows, too."""
        self.marshal(())

    def encode(self, rows: bytes, *, single: bool) -> bytes:
        """The answer to one body is one JSON value."""
        return rows

    def _accepted(self, media_type: str) -> bool:
        kind = media_type.partition("/")[0]
        return any(one in (_ANY, media_type, f"{kind}/*") for one in self._takes)


def _name(media_type: str) -> str:
    return "bodies of any type" if media_type == _ANY else media_type
