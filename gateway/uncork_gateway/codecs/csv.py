"""CSV (RFC 4180) split into header and rows, so that the rows of many bodies can share one header."""

import codecs
import csv
import io
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from uncork_dispatcher.wording import plural
from uncork_gateway.errors import BadRequest
from uncork_gateway.protocols.limits import DEFAULT_LIMITS, Limits

# All bytes but the separators of unquoted fields and lines.
_CONTENT = bytes(set(range(256)) - set(b",\n"))

# The module limits a field to 128 KiB by default. The gateway limits bodies before they get here.
csv.field_size_limit(sys.maxsize)


class Table(NamedTuple):
    """A table as text: column names, and rows with a field for each name.

    Every row ends in a line feed, and no line is blank, so rows of several tables can be concatenated.
    """

    names: tuple[str, ...]
    lines: bytes
    rows: int


def read_table(body: bytes, limits: Limits = DEFAULT_LIMITS) -> Table:
    """Check the structure of a CSV body in UTF-8, and count its rows. Blank lines are ignored.

    Rows without quotes stay unchanged; otherwise all fields are quoted.

    Raises:
        BadRequest: if the body is not CSV, a column name is missing or repeated, a row and the header differ
            in length, there are no rows, or the rows or values exceed the limits.
    """
    body = body.removeprefix(codecs.BOM_UTF8)
    if b"\0" in body:
        raise BadRequest(f"the body is not valid CSV: NUL character at byte {body.index(0)}")
    header, _, lines = body.partition(b"\n")
    limits.check_rows(header.count(b",") + 1)
    header = header.removesuffix(b"\r")
    if header and b"\r" not in header and b'"' not in lines:
        limits.check_rows(_line_ends(lines))
        names = _read_names(_read(header.decode()))
        lines = lines.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        if not lines.endswith(b"\n"):
            lines += b"\n"
        if rows := _count_plain(lines, len(names)):
            return Table(names, lines, rows)
    limits.check_values(body.count(b",") + _line_ends(body))
    return _rewrite(body, limits)


def write_header(names: Iterable[str]) -> str:
    """Return a header line whose spelling depends only on the names."""
    return ",".join('"' + name.replace('"', '""') + '"' for name in names)


def read_lines(lines: bytes) -> list[list[str]]:
    """Return the fields of each row of a :class:`Table`."""
    return _read(lines.decode())


def pick_lines(lines: bytes, groups: Sequence[Sequence[int]]) -> list[bytes]:
    """Return, for each group of row numbers, the lines of these rows of a :class:`Table`."""
    rows = lines_of(lines)
    return [b"".join([rows[number] for number in group]) for group in groups]


def lines_of(text: bytes) -> list[bytes]:
    """Return the lines of CSV, each with its line end; a quoted field may contain line ends."""
    if b'"' not in text:
        return text.splitlines(keepends=True)
    lines: list[bytes] = []
    pieces: list[bytes] = []
    quotes = 0
    for piece in text.splitlines(keepends=True):
        pieces.append(piece)
        quotes += piece.count(b'"')
        if quotes % 2 == 0:
            lines.append(b"".join(pieces))
            pieces, quotes = [], 0
    return [*lines, b"".join(pieces)] if pieces else lines


def lines_under(header: bytes, text: bytes) -> list[bytes]:
    """Return the lines of CSV, its columns in the order of a header if it has the same columns."""
    lines = lines_of(text)
    if lines[0] == header:
        return lines
    try:
        [wanted], [names, *rows] = _read(header.decode()), _read(text.decode())
        if first_repeated(names) is not None or sorted(names) != sorted(wanted):
            return lines
        places = [names.index(name) for name in wanted]
        ordered = [[row[place] for place in places] for row in rows]
    except (BadRequest, ValueError, IndexError):  # a handler's own text need not be valid
        return lines
    written = io.StringIO()
    csv.writer(written, lineterminator="\r\n").writerows(ordered)
    return [header, *lines_of(written.getvalue().encode())]


def first_repeated(names: Sequence[str]) -> str | None:
    if len(set(names)) == len(names):
        return None
    counts = Counter(names)
    return next(name for name in names if counts[name] > 1)


def _line_ends(text: bytes) -> int:
    return text.count(b"\n") + text.count(b"\r") - text.count(b"\r\n")


def _count_plain(lines: bytes, width: int) -> int:
    """Return the number of rows if every line has ``width`` unquoted fields; else 0.

    The result is 0 for a single column too, where blank lines cannot be distinguished from empty fields.
    """
    marks = lines.translate(None, _CONTENT)
    rows = len(marks) // width
    return rows if width > 1 and marks == (b"," * (width - 1) + b"\n") * rows else 0


def _rewrite(body: bytes, limits: Limits) -> Table:
    """Return all fields, parsed and written again: slower, but correct with quotes, and reports errors."""
    rows = _read(body.decode())
    names = _read_names(rows)
    del rows[0]
    if not rows:
        raise BadRequest("the body has no rows, only a header")
    limits.check_rows(len(rows))
    for number, row in enumerate(rows, 1):
        if len(row) != len(names):
            raise BadRequest(f"row {number} has {plural(len(row), 'field')}, but the header has {len(names)}")
    text = io.StringIO()
    csv.writer(text, quoting=csv.QUOTE_ALL, lineterminator="\n").writerows(rows)
    return Table(names, text.getvalue().encode(), len(rows))


def _read(text: str) -> list[list[str]]:
    """Return the fields of each non-blank line. A quoted field may contain line ends."""
    # Without newline="" quoted line ends would be changed.
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    try:
        return [row for row in reader if row]
    except csv.Error as error:
        raise BadRequest(f"the body is not valid CSV: {error} (line {reader.line_num})") from error


def _read_names(rows: list[list[str]]) -> tuple[str, ...]:
    if not rows:
        raise BadRequest("the body is empty; send a header and at least one row")
    names = tuple(rows[0])
    if "" in names:
        raise BadRequest(f"column {names.index('') + 1} of the header has no name")
    if (twice := first_repeated(names)) is not None:
        raise BadRequest(f"the header repeats column {twice!r}")
    return names
