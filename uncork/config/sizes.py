"""Sizes in bytes as people write them."""

import re

_SIZE = re.compile(r"(\d{1,15}(?:\.\d{1,15})?) ?([kmgt]i?)?b?", re.IGNORECASE)
MOST_BYTES = 2**50
"""The largest accepted size."""
_POWERS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}


def read_size(text: str) -> int:
    """Parse a size such as 1000000, 500MB or 1.5 GiB; units with an i count by 1024, others by 1000.

    Raises:
        ValueError: if the text is no size above 0; the message says what is accepted.
    """
    found = _SIZE.fullmatch(text.strip())
    unit = (found[2] or "").lower() if found else ""
    size = round(float(found[1]) * (1024 if "i" in unit else 1000) ** _POWERS[unit[:1]]) if found else 0
    if not 1 <= size <= MOST_BYTES:
        raise ValueError(
            f"{text!r} is not a size; give a number of bytes from 1 to {MOST_BYTES}, or a number with a unit "
            "such as 500MB or 2GiB"
        )
    return size
