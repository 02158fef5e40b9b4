"""Counts with nouns in messages."""


def plural(count: int, one: str, many: str = "") -> str:
    """Return a count with its noun: 1 row, 2 rows. ``many`` is an irregular plural."""
    return f"{count} {one if count == 1 else many or f'{one}s'}"
