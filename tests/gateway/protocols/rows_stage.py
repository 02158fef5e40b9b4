"""Bodies of rows and columns, an independent parser, and servers that answer them."""

import json
import re
from collections.abc import Sequence

from hypothesis import strategies as st

from uncork_gateway.protocols.wire import Content

AWKWARD = (
    *(b"9007199254740993", b"1e400", b"-0.0", b"1", b"1.0", b'"1"', b'"1.0"', b"1E+2", b"null", b"true"),
    *(b"NaN", b"Infinity", b"-Infinity", b"7" * 5000),
    *(b'"\\u00e9"', b'"\xc3\xa9"', b'"\\ud83d\\ude00"', b'"\\ud800"', b'"],[\\"{\\\\"', b'"a, b : c"', b'""'),
    *(b'{"b64":"AQID"}', b'{"a":1,"a":2}', b"[]", b"{}", b"[ 1 , [ ] ]", b'{ "x" : [ NaN ] }'),
)
STRINGS = st.builds(json.dumps, st.text(max_size=5), ensure_ascii=st.booleans()).map(str.encode)
SCALARS = (
    st.sampled_from(AWKWARD) | STRINGS | (st.integers() | st.floats()).map(lambda x: json.dumps(x).encode())
)
COMMAS = st.sampled_from([b",", b" , ", b"\n,\t"])
ROWS = st.recursive(
    SCALARS,
    lambda inner: (
        st.builds(lambda comma, texts: b"[" + comma.join(texts) + b"]", COMMAS, st.lists(inner, max_size=3))
        | st.builds(lambda name, text: b"{" + name + b": " + text + b"}", STRINGS, inner)
    ),
    max_leaves=5,
)
ROW_LISTS = st.lists(ROWS, min_size=1, max_size=4)
NAMES = st.lists(STRINGS, min_size=1, max_size=3, unique_by=json.loads)
OTHERS = st.sampled_from([b"", b'"signature_name":"a",', b'"parameters": {"t": NaN},'])

_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*"|[][{},:]|[^][{},:"\s]+')


def parts(text: bytes) -> list[bytes]:
    """Split a list or an object at its commas by counting brackets; fail if it is not JSON."""
    json.loads(text, parse_int=str)
    depth, start, found = 0, 1, []
    for token in _TOKEN.finditer(text):
        mark = token.group()
        depth += (mark in b"[{") - (mark in b"]}")
        if (depth == 1 and mark == b",") or depth == 0:
            found.append(text[start : token.start()].strip())
            start = token.end()
    return [] if found == [b""] else found


def fields(text: bytes) -> dict[str, bytes]:
    """Return the members of an object; fail if a name is repeated."""
    found: dict[str, bytes] = {}
    for part in parts(text):
        name = _TOKEN.match(part)
        assert name is not None
        assert json.loads(name.group()) not in found
        found[json.loads(name.group())] = part[name.end() :].strip().removeprefix(b":").strip()
    return found


def listed(texts: Sequence[bytes], comma: bytes = b",") -> bytes:
    """Return a list with separators between brackets and elements."""
    return b"[ " + comma.join(texts) + b"\n]"


def columns_body(names: Sequence[bytes], rows: Sequence[Sequence[bytes]]) -> bytes:
    columns = [
        name + b" :" + listed(values) for name, values in zip(names, zip(*rows, strict=True), strict=True)
    ]
    return b'{"inputs": {' + b",".join(columns) + b"}}"


def predict(row: bytes) -> bytes:
    """A model over the text of a row."""
    return b'{"saw": ' + row + b', "length": %d}' % len(row)


def serve_rows(call: Content, explain: bool = False) -> Content:
    """Answer rows, and repeat the other members of the request."""
    members = fields(call.body)
    rows = [predict(row) for row in parts(members.pop("instances"))]
    texts = [b'"predictions" : ' + listed(rows, b" ,"), b'"version": "1.0"']
    texts += [b'"%b_was": %b' % (name.encode(), text) for name, text in members.items()]
    texts += [b'"explanations":' + listed(rows)] if explain else []
    return Content(b"{ " + b" , ".join(texts) + b"}\n")


def serve_columns(call: Content) -> Content:
    """Answer columns, with a column each and a constant."""
    columns = fields(fields(call.body)["inputs"])
    answers = [
        json.dumps(name).encode() + b":" + listed([predict(value) for value in parts(column)])
        for name, column in columns.items()
    ]
    return Content(b'{"outputs": {' + b", ".join([*answers, b'"\\u0000constant": [ 1e400 ]']) + b"}}")


GOOD_BODIES = st.builds(
    lambda others, rows: b"{" + others + b'"instances": ' + listed(rows) + b"}", OTHERS, ROW_LISTS
) | st.builds(lambda rows: columns_body([b'"x"', b'"\\u0079"'], [(row, row) for row in rows]), ROW_LISTS)
