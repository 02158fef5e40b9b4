"""The adapter for text."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import msgspec

from uncork_workers.definition.adapters.base import Adapter, InvalidInput, decode_rows
from uncork_workers.definition.adapters.tensors import read_tensors
from uncork_workers.wire.forms import ListForm, TensorForm
from uncork_workers.wire.messages import RowPath
from uncork_workers.wire.tensors import BYTES

_decoder: msgspec.json.Decoder[list[str]] = msgspec.json.Decoder(list[str])


class Text(Adapter):
    """Accepts one text per request, as ``text/plain`` or a JSON string; the handler gets a ``list[str]``."""

    kind = "text"

    def schema(self) -> dict[str, Any]:
        """Return the schema of a string."""
        return {"type": "string"}

    def merge(self, bodies: Sequence[bytes]) -> list[str]:
        """Return the handler's argument for JSON strings."""
        return decode_rows(_decoder, bodies, partial(InvalidInput, "each row must be a JSON string: "))

    def merge_tensors(
        self, bodies: Sequence[bytes], form: TensorForm | ListForm, rows: Sequence[int]
    ) -> list[str]:
        """Return the handler's argument for tensors of BYTES, one text per row."""
        if form.datatype != BYTES or form.shape:
            raise InvalidInput(
                f"each row must be one text: a tensor of {BYTES} with the shape (rows,), "
                f"got {form.datatype} with rows of shape {form.shape}"
            )
        texts: list[Any] = read_tensors(bodies, form, rows).tolist()
        if None in texts:
            raise InvalidInput("each row must be one text, got null - at ", RowPath(texts.index(None)))
        return texts
