"""Text, in any charset or as JSON strings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from uncork_workers.definition.adapters.base import Adapter, InvalidInput, joined, pieces_of
from uncork_workers.definition.adapters.tensors import BYTES, read_tensors
from uncork_workers.wire.messages import TensorForm

_decoder: msgspec.json.Decoder[list[str]] = msgspec.json.Decoder(list[str])


class Text(Adapter):
    """A request is a text, as text/plain or as a JSON string; the handler gets a list of str."""

    kind = "text"

    def schema(self) -> dict[str, Any]:
        """A string."""
        return {"type": "string"}

    def merge(self, bodies: Sequence[bytes]) -> list[str]:
        """Parse all bodies in one go."""
        try:
            return _decoder.decode(joined(bodies))
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise InvalidInput("each row must be a JSON string: ", *pieces_of(error)) from error

    def merge_tensors(self, bodies: Sequence[bytes], form: TensorForm, rows: Sequence[int]) -> list[str]:
        """Rows of the datatype BYTES, each one text."""
        if form.datatype != BYTES or form.shape:
            raise InvalidInput(
                f"each row must be one text: a tensor of {BYTES} with the shape (rows,), "
                f"got {form.datatype} with rows of shape {form.shape}"
            )
        texts: list[str] = read_tensors(bodies, form, rows).tolist()
        return texts
