"""The requirements of services on this machine: interpreters and GPUs."""

import os
from collections.abc import Callable, Mapping
from types import MappingProxyType

from uncork.config.errors import WrongUsage
from uncork.server.options import ServeOptions
from uncork.server.workers.pythons import require_python
from uncork_workers.supervision.gpus import GPU_VARIABLE, gpus_here, missing_gpus

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
            _require_gpus(options, warn=warn)


def _python_of(options: ServeOptions) -> tuple[str | None, list[str] | None]:
    return options.python, options.environment


def _require_gpus(options: ServeOptions, *, warn: Callable[[str], object]) -> None:
    """Refuse to start workers on GPUs that are missing; models would run on the CPU, or fail to load.

    ``warn`` gets the reason if the GPUs cannot be counted.

    Raises:
        WrongUsage: if a GPU is missing.
    """
    if not options.gpu_names:
        return
    total, evidence = gpus_here()
    given = f"{options.source_of('gpus')} {options.gpus}"
    if total is None:
        warn(
            f"{given} was not checked, because the GPUs of this machine cannot be counted ({evidence}); if a "
            "GPU is missing, its worker uses the CPU or fails to start"
        )
        return
    missing = missing_gpus(options.gpu_names, total)
    if not missing:
        return
    if total == 0:
        raise WrongUsage(
            f"{given}: this machine has no GPU ({evidence}); omit --gpus to run on the CPU, or make the "
            "GPUs of the host visible to this container"
        )
    visible = os.environ.get(GPU_VARIABLE)
    raise WrongUsage(
        f"{given}: this machine has no GPU {', '.join(missing)}, only {', '.join(map(str, range(total)))} "
        f"({evidence})" + (f"; {GPU_VARIABLE} is {visible!r}" if visible is not None else "")
    )
