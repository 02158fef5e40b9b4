"""Log lines that say which of several services they are about."""

import logging
from collections.abc import MutableMapping
from typing import Any

_LOG = logging.getLogger("uncork.gateway")


class ServiceLog(logging.LoggerAdapter[logging.Logger]):
    """Writes the name of a service before each message, unless it is empty: the service is the only one."""

    def __init__(self, service: str) -> None:
        super().__init__(_LOG, {})
        self._prefix = f"{service}: ".replace("%", "%%") if service else ""

    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, MutableMapping[str, Any]]:
        return f"{self._prefix}{msg}", kwargs
