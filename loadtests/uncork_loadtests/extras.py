"""Libraries of ``uncork[loadtest]``, imported only when needed."""

import importlib

from uncork_workers.extras import install_command


class ExtraMissing(Exception):
    """A library is not installed; the message says how to install it."""


def require(module: str, *, wanted_by: str) -> None:
    """Import a module of such a library; raise ExtraMissing if it is not installed."""
    try:
        importlib.import_module(module)
    except ImportError as error:
        library = module.partition(".")[0]
        raise ExtraMissing(
            f"{wanted_by} requires {library}; run {install_command('loadtest')} ({error})"
        ) from None
