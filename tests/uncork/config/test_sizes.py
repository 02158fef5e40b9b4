"""Sizes as people write them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from uncork.config.option_fields import read_size


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("1", 1),
        ("1000000", 10**6),
        ("500MB", 500 * 10**6),
        ("2GiB", 2 * 2**30),
        ("1.5 gib", 3 * 2**29),
        ("64k", 64_000),
        ("64Ki", 65_536),
        (" 3TB ", 3 * 10**12),
        ("7B", 7),
    ],
)
def test_sizes_are_read(text: str, size: int) -> None:
    assert read_size(text) == size


@pytest.mark.parametrize(
    "text", ["", "MB", "-1", "0", "0.1", "1.5.2", "2 gigabytes", "1e9", "iB", "5iB", "nan"]
)
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(
        ValueError,
        match=r"is not a size; give a number of bytes from 1 to 1125899906842624, or a number",
    ):
        read_size(text)


@given(st.integers(1, 10**14))
def test_bytes_are_what_they_say(size: int) -> None:
    assert read_size(str(size)) == size
