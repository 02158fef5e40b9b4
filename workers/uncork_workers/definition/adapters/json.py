"""The adapter for JSON values, optionally of a type."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import msgspec

from uncork_workers.definition.adapters.base import (
    UNREADABLE,
    Adapter,
    InvalidInput,
    decode_leniently,
    json_array,
    may_be_lenient,
    message_pieces,
)
from uncork_workers.definition.adapters.tensors import read_columns, read_tensors
from uncork_workers.wire.forms import ColumnsForm, ListForm, TensorForm
from uncork_workers.wire.messages import RowPath
from uncork_workers.wire.values import DefinitionError

_MOST_ERRORS = 5
# pydantic makes a dict of each error before it shows one.
_MOST_COLLECTED = 20_000
_syntax_decoder = msgspec.json.Decoder(msgspec.Raw)


class Json(Adapter):
    """Accepts one JSON value per request; the handler gets a list of them.

    Args:
        type: the type of each value: a ``msgspec.Struct``, a dataclass, a ``TypedDict``, a pydantic model, or
            any type that msgspec decodes, such as ``list[int] | str``. The handler gets instances of it, and
            a value that does not match gets 400. By default any value is accepted.

    Raises:
        DefinitionError: if the type cannot be decoded from JSON.
    """

    kind = "json"

    def __init__(self, *, type: Any = None) -> None:
        # Only pydantic's classes have this attribute, so a service without pydantic does not import it.
        reader = _PydanticReader if hasattr(type, "__pydantic_validator__") else _Reader
        self._reader: _Reader | _PydanticReader = reader(Any if type is None else type)

    def schema(self) -> dict[str, Any]:
        """Return the schema of the type."""
        return self._reader.schema

    def merge(self, bodies: Sequence[bytes]) -> list[Any]:
        """Return the handler's argument for JSON values."""
        document = json_array(bodies)
        if len(bodies) > 1 and may_be_lenient(document):
            # NaN takes a parser that rounds the digits of a Decimal: let it read no other client's row.
            return [row for body in bodies for row in self.merge([body])]
        return self._reader.parse(document)

    def merge_values(self, bodies: Sequence[bytes]) -> list[Any]:
        """Return the handler's argument for JSON values whose syntax has not been checked."""
        values: list[Any] = []
        for body in bodies:
            _check_syntax(body)
            merged = self.merge([body])
            if len(merged) != 1:
                raise InvalidInput(f"not valid JSON: expected one value, got {len(merged)}")
            values += merged
        return values

    def merge_tensors(
        self, bodies: Sequence[bytes], form: TensorForm | ListForm, rows: Sequence[int]
    ) -> list[Any]:
        """Return the rows as nested lists of numbers, booleans or text; a row of shape () as a bare value."""
        return self._reader.convert(read_tensors(bodies, form, rows).tolist)

    def merge_columns(self, bodies: Sequence[bytes], form: ColumnsForm, rows: Sequence[int]) -> list[Any]:
        """Return the rows as objects with a value from each tensor."""
        columns = read_columns(bodies, form, rows)

        def items() -> list[Any]:
            values = zip(*[column.tolist() for column in columns.values()], strict=True)
            return [dict(zip(columns, row, strict=True)) for row in values]

        return self._reader.convert(items)


def _check_syntax(body: bytes) -> None:
    """Reject NaN and infinity, as the gateway does in smaller values; ``merge`` finds other faults."""
    if may_be_lenient(body):
        try:
            _syntax_decoder.decode(body)
        except UNREADABLE as error:
            raise InvalidInput(f"not valid JSON: {error}") from error


class _Reader:
    """Decodes a type with msgspec."""

    def __init__(self, kind: Any) -> None:
        try:
            self.schema: dict[str, Any] = msgspec.json.schema(kind)
            self._decoder: msgspec.json.Decoder[list[Any]] = msgspec.json.Decoder(list[kind])
        except (TypeError, ValueError, NameError) as error:
            raise _no_json(kind) from error
        self._kind = kind

    def parse(self, document: bytes) -> list[Any]:
        try:
            return decode_leniently(self._decoder, document)
        except UNREADABLE as error:
            raise self._wrong(error) from error

    def convert(self, items: Callable[[], list[Any]]) -> list[Any]:
        try:
            # In JSON, too, keys are texts and may mean numbers.
            return msgspec.convert(items(), list[self._kind], str_keys=True)  # type: ignore[name-defined]
        except msgspec.ValidationError as error:
            raise self._wrong(error) from error

    def _wrong(self, error: Exception) -> InvalidInput:
        # Without a type, the only possible ValidationError is a number that is too large.
        is_json = isinstance(error, msgspec.ValidationError) and self._kind is not Any
        return InvalidInput("not valid: " if is_json else "not valid JSON: ", *message_pieces(error))


class _PydanticReader:
    """Decodes a pydantic model."""

    def __init__(self, model: Any) -> None:
        import pydantic
        import pydantic_core

        self._to_json = pydantic_core.to_json
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
            raise _invalid_input(error) from error

    def convert(self, items: Callable[[], list[Any]]) -> list[Any]:
        with suppress(self._wrong):
            return self._adapter.validate_python(items())
        # A strict model takes other types from JSON than from Python, such as a list for a tuple. The items
        # are made anew, because validators may have changed them.
        return self.parse(self._to_json(items()))


def _no_json(kind: Any) -> DefinitionError:
    return DefinitionError(
        f"Json: values of type {kind!r} cannot be decoded from JSON; use a msgspec.Struct, a dataclass, "
        f"a TypedDict, a pydantic model, or types such as list[int]"
    )


def _invalid_input(error: Any) -> InvalidInput:
    """Return the first errors that pydantic found, with their paths."""
    if error.error_count() > _MOST_COLLECTED:
        return InvalidInput(f"not valid: {error.error_count()} errors")
    faults = error.errors(include_url=False, include_context=False, include_input=False)
    pieces: list[str | RowPath] = []
    for fault in faults[:_MOST_ERRORS]:
        separator = "; " if pieces else "not valid: "
        # A syntax error has no location.
        if not fault["loc"]:
            pieces.append(f"{separator}{fault['msg']}")
            continue
        row, *path = fault["loc"]
        pieces += (f"{separator}{fault['msg']} - at ", RowPath(row, tuple(path)))
    if len(faults) > _MOST_ERRORS:
        pieces.append(f"; and {len(faults) - _MOST_ERRORS} more")
    return InvalidInput(*pieces)
