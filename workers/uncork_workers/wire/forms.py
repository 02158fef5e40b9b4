"""Encodings of the bodies of requests and results, as messages name them."""

from collections.abc import Sequence
from typing import Literal, TypeVar

import msgspec


class TensorForm(msgspec.Struct, tag="tensor", frozen=True):
    """A body of raw tensor rows; datatype and shape of a row follow the Open Inference Protocol."""

    datatype: str
    shape: tuple[int, ...]


class ListForm(msgspec.Struct, tag="list", frozen=True):
    """A body of a tensor as JSON texts, joined by commas: the rows of a result, the values of a request."""

    datatype: str
    shape: tuple[int, ...]


class ColumnsForm(msgspec.Struct, tag="columns", frozen=True):
    """A body of several tensors by name, each with its own form; see ``join_columns`` of ``wire.tensors``."""

    columns: tuple[tuple[str, TensorForm | ListForm], ...]


class RecordsForm(msgspec.Struct, tag="records", frozen=True):
    """A body of comma-separated JSON objects, with the forms of the values that come from arrays, by name."""

    columns: tuple[tuple[str, ListForm], ...]


class TableForm(msgspec.Struct, tag="table", frozen=True):
    """A body of CSV lines, each with its line end, without the ``header``."""

    header: str


class RawForm(msgspec.Struct, tag="raw", frozen=True):
    """A body as the client sent it; a :class:`Meta` describes it."""


class ValueForm(msgspec.Struct, tag="value", frozen=True):
    """A large JSON value as the client sent it; the gateway has not checked its syntax."""


Form = TensorForm | ListForm | ColumnsForm | TableForm | RawForm | ValueForm | None
"""The encoding of a request body; None means comma-separated JSON rows."""

RowsForm = TensorForm | ListForm | ColumnsForm | RecordsForm | None
"""The encoding of result rows; None means comma-separated JSON texts."""

Wanted = Literal["", "npy", "tensors"]
"""How a request gets its rows: as JSON; raw if they are one array, else as JSON; always as raw tensors."""

F = TypeVar("F", Form, RowsForm)


def compact_forms(forms: Sequence[F]) -> tuple[F, ...]:
    """Return the forms as a message carries them: a single one if all are equal."""
    # count() compares identical objects first and hashes none.
    return tuple(forms[:1] if forms and forms.count(forms[0]) == len(forms) else forms)


def expand_forms(forms: Sequence[F], count: int) -> Sequence[F]:
    """Return one form per body from the forms in a message."""
    return [forms[0]] * count if len(forms) == 1 else forms


def common_form(forms: Sequence[RowsForm]) -> RowsForm:
    """Return the form that rows have in common; for objects, the columns in which all forms agree."""
    if len(set(forms)) == 1:
        return forms[0]
    records = [form.columns for form in forms if isinstance(form, RecordsForm)]
    if not records or len(records) < len(forms):
        return None
    shared = set(records[0]).intersection(*records)
    columns = tuple([column for column in records[0] if column in shared])
    return RecordsForm(columns) if columns else None
