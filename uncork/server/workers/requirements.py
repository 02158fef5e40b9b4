"""The requirements of services on this machine: interpreters and GPUs."""

from collections.abc import Callable, Mapping
from types import MappingProxyType

from uncork.server.options import ServeOptions
from uncork.server.workers.gpus import require_gpus
from uncork.server.workers.pythons import require_python

_NONE: Mapping[str, ServeOptions] = MappingProxyType({})


def require_resources(
    services: Mapping[str, ServeOptions],
    *,
    running: Mapping[str, ServeOptions] = _NONE,
    warn: Callable[[str], object],
) -> None:
    """Check that the interpreters and GPUs of services are there; this may start processes, and take seconds.

    Args:
        services: by name.
        running: the services that run already; what they have is not checked again.
        warn: gets the reason if GPUs cannot be counted.

    Raises:
        WrongUsage: if one is missing.
    """
    for name, options in services.items():
        before = running.get(name)
        if before is None or _python_of(options) != _python_of(before):
            require_python(options)
        if before is None or options.gpus != before.gpus:
            require_gpus(options, warn=warn)


def _python_of(options: ServeOptions) -> tuple[str | None, list[str] | None]:
    return options.python, options.environment
