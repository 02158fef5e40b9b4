"""Hypothesis strategies for bodies of requests, good, nearly good and bad."""

import json

from hypothesis import strategies as st

SPACES = st.text(alphabet=" \t\r\n", max_size=3)
SCALARS = st.integers(-5, 5) | st.floats(allow_nan=False, allow_infinity=False) | st.booleans() | st.text()
VALUES = st.recursive(
    SCALARS | st.none(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=10,
)
# Bytes that a mutation inserts: all characters with a meaning in JSON, and some others.
_BYTES = st.sampled_from(list(b'[[[]]],,,{}::""\\/u0019.eE+-tfn \t\r\n\x00\x1f\x80\xff'))


@st.composite
def written(draw: st.DrawFn, value: object) -> bytes:
    """Return JSON text with random white space between tokens."""
    comma, colon = (draw(SPACES) + mark + draw(SPACES) for mark in ",:")
    text = json.dumps(value, separators=(comma, colon), ensure_ascii=draw(st.booleans()))
    return f"{draw(SPACES)}{text}{draw(SPACES)}".encode()


@st.composite
def mutated(draw: st.DrawFn, bodies: st.SearchStrategy[bytes]) -> bytes:
    """Return a body with some bytes changed, inserted or deleted."""
    body = bytearray(draw(bodies))
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(body)))
        body[at : at + draw(st.integers(0, 2))] = draw(st.lists(_BYTES, max_size=3).map(bytes))
    return bytes(body)
