"""Libraries that come with ``uncork[loadtest]`` alone, and are loaded only when they are needed."""

import importlib.util


class ExtraMissing(Exception):
    """A library is not installed; the message says how to get it."""


def require(library: str, *, wanted_by: str) -> None:
    """Find out, without loading it, whether a library is there.

    Raises:
        ExtraMissing: if not.
    """
    if importlib.util.find_spec(library) is None:
        raise ExtraMissing(f'{wanted_by} needs {library}: pip install "uncork[loadtest]"')
