"""The named inputs of an API, for requests whose rows are tensors or named values."""

import base64
from collections.abc import Collection, Sequence
from typing import Literal, NamedTuple

import msgspec
from msgspec import Raw

from uncork_gateway.codecs import Codec, Marshalled
from uncork_gateway.errors import BadRequest
from uncork_gateway.protocols.decoding import decode_json
from uncork_gateway.protocols.limits import Limits
from uncork_gateway.protocols.raw_json import elements, is_list, is_object, members, written
from uncork_gateway.protocols.tensor_rows import values_of
from uncork_gateway.protocols.tensors import Tensor

_BASE64 = "b64"
_text_decoder = msgspec.json.Decoder(str)


class Inputs(NamedTuple):
    """The inputs of an API.

    Attributes:
        rows: "objects" if a row is an object with a value for each input, "values" if it is the only input's
            value, "any" if either.
        single: the inputs whose values are single numbers, booleans or texts; "" names the only input.
        all_single: True if the values of all other inputs are single too.
        texts: the inputs whose values are texts.
    """

    rows: Literal["objects", "values", "any"] = "any"
    single: Collection[str] = ()
    all_single: bool = False
    texts: Collection[str] = ()

    def marshal(self, tensors: Sequence[Tensor], codec: Codec) -> Marshalled:
        """Convert checked tensors of equal length to a request.

        Raises:
            BadRequest: if the API does not accept the tensors.
        """
        if self.rows == "objects" or (self.rows == "any" and len(tensors) > 1):
            names = [tensor.name for tensor in tensors]
            if len(set(names)) < len(names):
                raise BadRequest(f"input names must be unique, got {', '.join(map(repr, names))}")
            return codec.marshal_columns([self._fitted(tensor, tensor.name) for tensor in tensors])
        if len(tensors) > 1:
            names = [tensor.name for tensor in tensors]
            raise BadRequest(f"this model takes one input, got {', '.join(map(repr, names))}")
        return codec.marshal_tensor(self._fitted(tensors[0], ""))

    def read_row(self, row: bytes, limits: Limits) -> bytes:
        """Return a JSON row without the name of its only input, and without lists around single values.

        Raises:
            TooMany: if an object or a list that is read has too many members or elements.
        """
        if self.rows == "any":
            return row
        if self.rows == "objects":
            return self._read_object(row, limits)
        text = Raw(row)
        if is_object(text):
            fields = _members(text, limits)
            if len(fields) == 1 and _BASE64 not in fields:
                [text] = fields.values()
        return self._read_value(text, "", limits)

    def _read_object(self, row: bytes, limits: Limits) -> bytes:
        text = Raw(row)
        if not is_object(text) or not (b"[" in row or b'"b64"' in row):
            return row
        fields = _members(text, limits)
        return written({name: self._read_value(value, name, limits) for name, value in fields.items()})

    def _read_value(self, value: Raw, name: str, limits: Limits) -> bytes:
        if self._is_single(name) and is_list(value):
            limits.check_items(value)
            inner = elements(value)
            value = inner[0] if len(inner) == 1 else value
        return _decoded(value, limits) if name in self.texts and is_object(value) else bytes(value)

    def _is_single(self, name: str) -> bool:
        return self.all_single or name in self.single

    def _fitted(self, tensor: Tensor, name: str) -> Tensor:
        """Drop inner axes of length 1 if the input's values are single."""
        rows, *inner = tensor.shape
        if not inner or set(inner) != {1} or not self._is_single(name):
            return tensor
        form = tensor.form if tensor.form == "binary" else "flat"
        return msgspec.structs.replace(tensor, shape=(rows,), form=form, data=values_of(tensor))


ANY_INPUTS = Inputs()
"""Rows of any kind."""


def _members(text: Raw, limits: Limits) -> dict[str, Raw]:
    limits.check_items(text)
    return members(text)


def _decoded(value: Raw, limits: Limits) -> bytes:
    """Decode TensorFlow Serving's ``{"b64": …}`` to a JSON text; return any other value unchanged."""
    fields = _members(value, limits)
    if fields.keys() != {_BASE64}:
        return bytes(value)
    try:
        text = decode_json(_text_decoder, fields[_BASE64], "a text", name=_BASE64)
        return msgspec.json.encode(base64.b64decode(text, validate=True).decode())
    except ValueError as error:  # binascii.Error and UnicodeDecodeError are
        raise BadRequest(f"b64 must be the base64 of a text in UTF-8: {error}") from error
