"""Bodies that only the worker can read; it receives them unchanged, with content type and headers."""

from collections.abc import Sequence
from typing import NoReturn

import msgspec

from uncork_gateway.codecs.base import Marshalled
from uncork_gateway.codecs.cost import Weigh, unweighed
from uncork_gateway.errors import BadRequest, UnsupportedMediaType
from uncork_gateway.protocols.limits import DEFAULT_LIMITS, Limits
from uncork_gateway.protocols.tensors import Tensor
from uncork_workers.wire.forms import RawForm
from uncork_workers.wire.messages import Meta

_ANY = "*"
_OCTETS = "application/octet-stream"


class RawCodec:
    """Accepts any body as one row.

    Args:
        weigh: computes the cost of a body; an empty body costs as much as one byte.
        accepts: media types; ``image/*`` accepts all images, ``*`` any. The first is assumed for bodies
            without a content type.
    """

    summary = ""
    one_or_many = False

    def __init__(
        self, weigh: Weigh = unweighed, *, accepts: Sequence[str], limits: Limits = DEFAULT_LIMITS
    ) -> None:
        self._weigh = weigh
        self.limits = limits
        self._takes = tuple(accepts)
        # The wildcard keeps the headers of every request; decode rejects other media types.
        self.accepts = (*(one for one in accepts if one != _ANY), _ANY)

    def decode(self, body: bytes, media_type: str = _OCTETS) -> Marshalled:
        """Check only the media type.

        Raises:
            UnsupportedMediaType: if the API does not accept it.
        """
        if not self._accepted(media_type):
            raise UnsupportedMediaType(
                f"content type {media_type!r} is not accepted; send {' or '.join(self._takes)}"
            )
        cost = self._weigh([body or b"\0"])
        meta = Meta(content_type=media_type)
        return Marshalled(body, rows=1, cost=cost, form=RawForm(), meta=meta)

    def marshal(self, rows: Sequence[bytes | msgspec.Raw]) -> NoReturn:
        """Reject rows from other protocols, which have no body of this kind."""
        raise BadRequest(
            f"this API accepts {' or '.join(map(_name, self._takes))}, and only at its own route"
        )

    def marshal_tensor(self, tensor: Tensor) -> NoReturn:
        self.marshal(())

    def marshal_columns(self, tensors: Sequence[Tensor]) -> NoReturn:
        self.marshal(())

    def _accepted(self, media_type: str) -> bool:
        kind = media_type.partition("/")[0]
        return any(one in (_ANY, media_type, f"{kind}/*") for one in self._takes)


def _name(media_type: str) -> str:
    return "bodies of any type" if media_type == _ANY else media_type
