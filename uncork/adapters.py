"""Input adapters for ``@api(input=...)``."""

from uncork_workers.definition.adapters import *  # noqa: F403
from uncork_workers.definition.adapters import __all__ as __all__
