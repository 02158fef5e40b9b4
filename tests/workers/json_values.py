"""Hypothesis strategies for JSON, and for bytes that are nearly JSON."""

import json

from hypothesis import strategies as st

SCALARS = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
)

VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
"""Any JSON value."""

SPACES = st.text(alphabet=" \t\r\n", max_size=3).map(str.encode)


def to_json(value: object) -> bytes:
    """Return the value as JSON without escapes of non-ASCII characters."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False).encode()
