"""Any JSON value, one item each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from uncork_workers.adapters.base import Adapter, InvalidInput, joined
from uncork_workers.adapters.tensors import read_tensors
from uncork_workers.frames import TensorForm

_decoder = msgspec.json.Decoder()


class Json(Adapter):
    """A request is one JSON value of any kind; the handler gets a list of them."""

    kind = "json"

    def merge(self, bodies: Sequence[bytes]) -> list[Any]:
        """Parse all bodies in one go."""
        return _parse(joined(bodies))

    def check(self, body: bytes, rows: int) -> None:
        """Accept whatever is one JSON value."""
        if len(_parse(joined([body]))) != rows:
            raise InvalidInput("not exactly one JSON value")

    def merge_tensors(self, bodies: Sequence[bytes], form: TensorForm, rows: Sequence[int]) -> list[Any]:
        """Each row as nested lists of numbers, booleans or text; a row of shape () is the bare value."""
        items: list[Any] = read_tensors(bodies, form, rows).tolist()
        return items


def _parse(document: bytes) -> list[Any]:
    try:
        items: list[Any] = _decoder.decode(document)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidInput(f"not valid JSON: {error}") from error
    return items
