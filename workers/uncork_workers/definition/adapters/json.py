"""Any JSON value, or values of a type, one item each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from uncork_workers.definition.adapters.base import Adapter, InvalidInput, joined, pieces_of
from uncork_workers.definition.adapters.tensors import read_tensors
from uncork_workers.wire.messages import RowPath, TensorForm
from uncork_workers.wire.schema import DefinitionError

_MOST_FAULTS = 5


class Json(Adapter):
    """A request is one JSON value; the handler gets a list of them.

    Args:
        type: what each value must be; the handler gets values of it. A ``msgspec.Struct``, a dataclass, a
            TypedDict, a model of pydantic, or anything that msgspec can make of JSON, such as
            ``list[int] | str``. By default any value is accepted.

    Raises:
        DefinitionError: if values of the type cannot be made of JSON.
    """

    kind = "json"

    def __init__(self, *, type: Any = None) -> None:
        self._reader: _Reader | _PydanticReader
        if type is None:
            self._reader = _Reader(Any)
        # A class that has it is pydantic's, which has been imported for it then.
        elif hasattr(type, "__pydantic_validator__"):
            self._reader = _PydanticReader(type)
        else:
            self._reader = _Reader(type)

    def schema(self) -> dict[str, Any]:
        """That of the type."""
        return self._reader.schema

    def merge(self, bodies: Sequence[bytes]) -> list[Any]:
        """Parse all bodies in one go."""
        return self._reader.parse(joined(bodies))

    def merge_tensors(self, bodies: Sequence[bytes], form: TensorForm, rows: Sequence[int]) -> list[Any]:
        """Each row as nested lists of numbers, booleans or text; a row of shape () is the bare value."""
        return self._reader.convert(read_tensors(bodies, form, rows).tolist())


class _Reader:
    """Makes values of a type that msgspec knows."""

    def __init__(self, kind: Any) -> None:
        try:
            self.schema: dict[str, Any] = msgspec.json.schema(kind)
            self._decoder: msgspec.json.Decoder[list[Any]] = msgspec.json.Decoder(list[kind])
        except (TypeError, ValueError, NameError) as error:
            raise _no_json(kind) from error
        self._kind = kind

    def parse(self, document: bytes) -> list[Any]:
        try:
            return self._decoder.decode(document)
        except msgspec.ValidationError as error:
            raise self._wrong(error) from error
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise InvalidInput("not valid JSON: ", *pieces_of(error)) from error

    def convert(self, items: list[Any]) -> list[Any]:
        try:
            return msgspec.convert(items, list[self._kind])  # type: ignore[name-defined]
        except msgspec.ValidationError as error:
            raise self._wrong(error) from error

    def _wrong(self, error: msgspec.ValidationError) -> InvalidInput:
        # Without a type only numbers can be wrong: those that are too large.
        what = "not valid JSON" if self._kind is Any else "not valid"
        return InvalidInput(f"{what}: ", *pieces_of(error))


class _PydanticReader:
    """Makes models of pydantic."""

    def __init__(self, model: Any) -> None:
        import pydantic

        self._wrong = pydantic.ValidationError
        try:
            self._adapter = pydantic.TypeAdapter(list[model])
            self.schema: dict[str, Any] = pydantic.TypeAdapter(model).json_schema()
        except (pydantic.PydanticUserError, NameError) as error:
            raise _no_json(model) from error

    def parse(self, document: bytes) -> list[Any]:
        try:
            return self._adapter.validate_json(document)
        except self._wrong as error:
            raise _faults(error) from error

    def convert(self, items: list[Any]) -> list[Any]:
        try:
            return self._adapter.validate_python(items)
        except self._wrong as error:
            raise _faults(error) from error


def _no_json(kind: Any) -> DefinitionError:
    return DefinitionError(
        f"Json: values of type {kind!r} cannot be made of JSON; use a msgspec.Struct, a dataclass, "
        f"a TypedDict, a model of pydantic, or types such as list[int]"
    )


def _faults(error: Any) -> InvalidInput:
    """The first faults that pydantic found, with the path to each."""
    faults = error.errors(include_url=False, include_context=False, include_input=False)
    pieces: list[str | RowPath] = []
    for fault in faults[:_MOST_FAULTS]:
        separator = "; " if pieces else "not valid: "
        # A syntax error has no row.
        if not fault["loc"]:
            pieces.append(f"{separator}{fault['msg']}")
            continue
        row, *path = fault["loc"]
        pieces += (f"{separator}{fault['msg']} - at ", RowPath(row, tuple(path)))
    if len(faults) > _MOST_FAULTS:
        pieces.append(f"; and {len(faults) - _MOST_FAULTS} more")
    return InvalidInput(*pieces)
