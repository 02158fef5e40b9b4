"""Reads the values of ``group_by`` from requests, and divides requests whose rows differ in them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from uncork_dispatcher.scheduling.admission import MOST_GROUPS
from uncork_gateway.codecs.base import Marshalled, Part
from uncork_gateway.codecs.parts import part_of
from uncork_gateway.errors import BadRequest
from uncork_gateway.headers import Header, combined
from uncork_gateway.protocols.decoding import decode_json
from uncork_gateway.protocols.lenient_json import read_members
from uncork_gateway.protocols.limits import Limits
from uncork_gateway.protocols.raw_json import is_object, members
from uncork_gateway.protocols.tensor_rows import json_rows
from uncork_gateway.protocols.tensors import Tensor, pick_rows
from uncork_workers.wire.groups import (
    MAX_VALUE_BYTES,
    NO_VALUE,
    FieldReader,
    Source,
    joined,
    value_text,
)
from uncork_workers.wire.schema import ApiDescription

Row = bytes | Raw
Values = tuple[bytes | None, ...]
"""The text of each field of a row that ``group_by`` names; None for a field that the row does not have."""


class RowGroups:
    """The fields of rows by which an API groups requests, for codecs; none if it does not group by rows."""

    def __init__(self, fields: Sequence[str]) -> None:
        self.fields = fields
        self._reader = FieldReader(fields)
        self._absent: Values = (None,) * len(fields)

    def of_body(self, body: bytes) -> Values:
        """Return the values of a body that is one row, and check its syntax.

        Raises:
            BadRequest: if it is not a JSON object, or a value is not accepted.
        """
        found = self._reader.texts(decode_json(self._reader.decoder, body, "an object"))
        return self._checked(found, {})

    def divide(
        self,
        body: bytes,
        rows: Sequence[Row],
        marshal: Callable[[bytes, Sequence[Row]], Marshalled],
    ) -> Marshalled:
        """Marshal JSON rows, each group alone. ``body`` has the same rows, separated by commas.

        Raises:
            BadRequest: if a row is not an object, or a value is not accepted.
        """
        if not self.fields:
            return marshal(body, rows)

        def parts(groups: Sequence[Sequence[int]]) -> Iterable[Marshalled]:
            for group in groups:
                some = [rows[number] for number in group]
                yield marshal(b",".join(some), some)

        read = (self._read(row, number) for number, row in enumerate(rows))
        return self.divide_by(read, lambda: marshal(body, rows), parts)

    def divide_columns(
        self,
        tensors: Sequence[Tensor],
        marshal: Callable[[Sequence[Tensor]], Marshalled],
        limits: Limits,
    ) -> Marshalled:
        """Marshal rows that are objects with a value from each tensor, each group alone.

        Raises:
            BadRequest: if a name is no text, a value is not accepted, or there are too many values to divide.
        """
        # Once for all groups: names can be as long as the body.
        for name in [tensor.name for tensor in tensors]:
            try:
                name.encode()  # the message to a worker has it
            except UnicodeEncodeError:
                raise BadRequest(f"the input name {name!r} has half of a character") from None
        if not self.fields:
            return marshal(tensors)
        rows = tensors[0].shape[0]

        def parts(groups: Sequence[Sequence[int]]) -> Iterable[Marshalled]:
            limits.check_values(rows * len(tensors))
            picked = [pick_rows(tensor, groups) for tensor in tensors]
            return map(marshal, zip(*picked, strict=True))

        by_name = {tensor.name: tensor for tensor in tensors}
        columns: list[Sequence[bytes | None]] = []
        for field in self.fields:
            tensor = by_name.get(field)
            if tensor is not None and len(tensor.shape) > 1:
                raise BadRequest(f"the input {field!r} must have one value per row, got {list(tensor.shape)}")
            columns.append([None] * rows if tensor is None else json_rows(tensor))
        return self.divide_by(zip(*columns, strict=True), lambda: marshal(tensors), parts)

    def divide_by(
        self,
        texts: Iterable[Sequence[bytes | None]],
        whole: Callable[[], Marshalled],
        parts: Callable[[Sequence[Sequence[int]]], Iterable[Marshalled]],
    ) -> Marshalled:
        """Marshal rows of one group with ``whole``, else each group with ``parts``; ``texts`` are the fields.

        Raises:
            BadRequest: if a value is not accepted.
        """
        known: dict[bytes, bytes] = {}
        values = [self._checked(row, known, number) for number, row in enumerate(texts)]
        if values.count(values[0]) == len(values):
            return replace(whole(), values=values[0])
        groups: dict[Values, list[int]] = {}
        for number, each in enumerate(values):
            groups.setdefault(each, []).append(number)
        if len(groups) > MOST_GROUPS:
            raise BadRequest(
                f"the rows of a request may have at most {MOST_GROUPS} different values of "
                f"{', '.join(map(repr, self.fields))}, got {len(groups)}; send several requests"
            )
        self._check_all_present(groups)
        marshalled = zip(groups.items(), parts(list(groups.values())), strict=True)
        return Marshalled(
            b"",
            len(values),
            single=False,
            parts=[Part(rows, replace(part, values=each)) for (each, rows), part in marshalled],
        )

    def absent(self, payload: Marshalled) -> Marshalled:
        """Return the request with no values: its rows are not objects, and have no fields."""
        return replace(payload, values=self._absent) if self.fields else payload

    def _read(self, row: Row, number: int) -> list[bytes | None]:
        try:
            return self._reader.read(row)
        except msgspec.ValidationError:
            raise self._no_object(number) from None
        except RecursionError as error:
            raise BadRequest(f"row {number + 1} is nested too deeply") from error
        except msgspec.DecodeError:
            # Rows of V1 may have NaN and infinity.
            text = Raw(bytes(row))
            if not is_object(text):
                raise self._no_object(number) from None
            found = members(text)
            return [bytes(found[field]) if field in found else None for field in self.fields]

    def _no_object(self, number: int) -> BadRequest:
        return BadRequest(f"row {number + 1} must be an object with the field {self.fields[0]!r}")

    def _checked(
        self, texts: Sequence[bytes | None], known: dict[bytes, bytes], number: int | None = None
    ) -> Values:
        """Check JSON texts, and return their values; ``known`` caches these by text."""
        found: list[bytes | None] = []
        for field, text in zip(self.fields, texts, strict=True):
            value = None if text is None else known.get(text)
            if value is None and text is not None:
                try:
                    value = known[text] = value_text(text)
                except ValueError as error:
                    where = "" if number is None else f" of row {number + 1}"
                    raise BadRequest(f"the field {field!r}{where} {error}") from None
            found.append(value)
        return tuple(found)

    def _check_all_present(self, groups: dict[Values, list[int]]) -> None:
        """Raise BadRequest if some rows have a field and some do not."""
        for at, field in enumerate(self.fields):
            missing = [rows[0] for each, rows in groups.items() if each[at] is None]
            if missing and any(each[at] is not None for each in groups):
                raise BadRequest(f"row {min(missing) + 1} has no field {field!r}; send it in every row")


NO_GROUPS = RowGroups(())


class Grouping:
    """Completes the groups of an API's requests with headers and parameters."""

    def __init__(self, sources: Sequence[Source], *, is_single: bool) -> None:
        self._sources = sources
        self._is_single = is_single
        self._headers = [source.name.encode() for source in sources if source.kind == "header"]
        self._reads_parameters = len(self._headers) < len(sources)

    def of_headers(self, headers: Sequence[Header]) -> tuple[bytes, ...]:
        """Return the values of the headers in ``group_by``. Names in ``headers`` may have capitals.

        Raises:
            BadRequest: if a value is too long.
        """
        if not self._headers:
            return ()
        found = combined(headers, self._headers)
        return tuple([_header_text(name, found.get(name)) for name in self._headers])

    def complete(self, payload: Marshalled, of_headers: Sequence[bytes]) -> Marshalled:
        """Return the request, or its parts, with their groups.

        Raises:
            BadRequest: if a value is missing or not accepted.
        """
        parameters = {}
        if self._reads_parameters and payload.parameters:
            # Parameters that group_by does not name may be NaN or infinite.
            parameters = read_members(payload.parameters, name="parameters")
        if not payload.parts:
            return replace(payload, group=self._text(payload.values, of_headers, parameters))
        parts = []
        for rows, part in payload.parts:
            group = self._text(part.values, of_headers, parameters)
            parts.append(part_of(payload, rows, part, group=group))
        return replace(payload, parts=parts)

    def _text(self, values: Values, of_headers: Sequence[bytes], parameters: dict[str, Raw]) -> bytes:
        fields, headers = iter(values), iter(of_headers)
        texts = []
        for kind, name in self._sources:
            if kind == "header":
                texts.append(next(headers))
                continue
            value = next(fields, None) if kind == "field" else None
            given = parameters.get(name)
            if value is None:
                value = _parameter_text(kind, name, given)
            elif given is not None:
                raise BadRequest(f"{name!r} is both a field of the rows and a parameter; send one of them")
            texts.append(value)
        return joined(texts, is_single=self._is_single)


def grouping(api: ApiDescription) -> Grouping | None:
    """Return how an API groups requests; None if it does not."""
    return Grouping(api.sources, is_single=isinstance(api.group_by, str)) if api.group_by else None


def _header_text(name: bytes, value: bytes | None) -> bytes:
    if value is None:
        return NO_VALUE
    if len(value) > MAX_VALUE_BYTES:
        raise BadRequest(
            f"the header {name.decode()} must have at most {MAX_VALUE_BYTES} bytes, got {len(value)}"
        )
    return msgspec.json.encode(value.decode("latin-1"))


def _parameter_text(kind: str, name: str, given: Raw | None) -> bytes:
    if given is None and kind == "field":
        raise BadRequest(
            f"the field {name!r} is missing; this API groups requests by it: send a string, a number, true "
            "or false"
        )
    if given is None:
        raise BadRequest(
            f"the parameter {name!r} is missing; this API groups requests by it: send it in parameters of "
            "a request of the Open Inference Protocol V2"
        )
    try:
        return value_text(given)
    except ValueError as error:
        raise BadRequest(f"the parameter {name!r} {error}") from None
