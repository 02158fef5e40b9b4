"""Libraries that come with ``uncork[loadtest]`` alone, and are loaded only when they are needed."""

import importlib


class ExtraMissing(Exception):
    """A library is not installed; the message says how to get it."""


def require(module: str, *, wanted_by: str) -> None:
    """Find out, by loading it, whether a module of such a library is there.

    Raises:
        ExtraMissing: if not.
    """
    try:
        importlib.import_module(module)
    except ImportError as error:
        library = module.partition(".")[0]
        raise ExtraMissing(f'{wanted_by} needs {library}: pip install "uncork[loadtest]" ({error})') from None
