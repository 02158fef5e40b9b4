"""CSV (RFC 4180) cut into a header and rows, so that the rows of many bodies can be read under one header."""

from __future__ import annotations

import codecs
import csv
import io
import sys
from collections.abc import Iterable
from typing import NamedTuple

from uncork_dispatcher.plural import plural
from uncork_gateway.errors import BadRequest

# All bytes that do not part fields and lines where nothing is quoted.
_CONTENT = bytes(set(range(256)) - set(b",\n"))

# The module's own limit is 128 KiB for a field. Bodies are limited before they come here.
csv.field_size_limit(sys.maxsize)


class Table(NamedTuple):
    """Names of columns, and so many rows as text: each has as many fields as there are names.

    Every row ends in a line feed, and no line is blank, so that rows may follow each other in any order.
    """

    names: tuple[str, ...]
    lines: bytes
    rows: int


def read_table(body: bytes) -> Table:
    """Check the structure of a body that is valid UTF-8, and count its rows. Blank lines are none.

    Rows stay as they came if nothing in them is quoted, else all their fields are quoted.

    Raises:
        BadRequest: if it is not CSV, a column has no name or that of another, a row has not as many fields as
            the header, or there are no rows.
    """
    body = body.removeprefix(codecs.BOM_UTF8)
    if b"\0" in body:
        raise BadRequest(f"the body is not valid CSV: a zero byte at byte {body.index(0)}")
    header, _, lines = body.partition(b"\n")
    header = header.removesuffix(b"\r")
    if header and b"\r" not in header and b'"' not in lines:
        names = _read_names(_read(header.decode()))
        lines = lines.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        if not lines.endswith(b"\n"):
            lines += b"\n"
        if rows := _count_plain(lines, len(names)):
            return Table(names, lines, rows)
    return _rewrite(body)


def write_header(names: Iterable[str]) -> str:
    """One spelling of a header, whatever the client's was."""
    return ",".join('"' + name.replace('"', '""') + '"' for name in names)


def read_lines(lines: bytes) -> list[list[str]]:
    """The fields of rows that have been checked."""
    return _read(lines.decode())


def _count_plain(lines: bytes, width: int) -> int:
    """How many rows there are if every line is a row of ``width`` fields without quotes; else 0.

    Of a single column it cannot be told which lines are blank.
    """
    marks = lines.translate(None, _CONTENT)
    rows = len(marks) // width
    return rows if width > 1 and marks == (b"," * (width - 1) + b"\n") * rows else 0


def _rewrite(body: bytes) -> Table:
    """Read all fields and write them again: slower, but right for whatever is quoted, and it finds faults."""
    rows = _read(body.decode())
    names = _read_names(rows)
    del rows[0]
    if not rows:
        raise BadRequest("the body has no rows, only a header")
    for number, row in enumerate(rows, 1):
        if len(row) != len(names):
            raise BadRequest(f"row {number} has {plural(len(row), 'field')}, the header has {len(names)}")
    text = io.StringIO()
    csv.writer(text, quoting=csv.QUOTE_ALL, lineterminator="\n").writerows(rows)
    return Table(names, text.getvalue().encode(), len(rows))


def _read(text: str) -> list[list[str]]:
    """The fields of all lines that are not blank; a line end within quotes is part of its field."""
    # Without newline="" line ends within quotes would be changed.
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    try:
        return [row for row in reader if row]
    except csv.Error as error:
        raise BadRequest(f"the body is not valid CSV: {error}, in line {reader.line_num}") from error


def _read_names(rows: list[list[str]]) -> tuple[str, ...]:
    if not rows:
        raise BadRequest("the body is empty; it must be a header and at least one row")
    names = tuple(rows[0])
    if "" in names:
        raise BadRequest(f"column {names.index('') + 1} has no name in the header")
    if len(set(names)) != len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise BadRequest(f"the header has the column {twice!r} more than once")
    return names
