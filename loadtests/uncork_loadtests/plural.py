"""Numbers of things, in the singular where there is one."""


def plural(count: int, one: str, many: str = "") -> str:
    """Return a count with its noun, ``many`` if the plural is not formed with an s: 1 row, 2 rows."""
    return f"{count} {one if count == 1 else many or f'{one}s'}"
