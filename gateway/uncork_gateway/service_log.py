"""Log lines that name the service they concern, if there are several."""

import logging
from collections.abc import MutableMapping
from typing import Any

_LOG = logging.getLogger("uncork.gateway")


class ServiceLog(logging.LoggerAdapter[logging.Logger]):
    """Puts a service's name before each message; an empty name, for a single service, adds nothing."""

    def __init__(self, service: str) -> None:
        super().__init__(_LOG, {})
        self._prefix = f"{service}: ".replace("%", "%%") if service else ""

    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, MutableMapping[str, Any]]:
        return f"{self._prefix}{msg}", kwargs
