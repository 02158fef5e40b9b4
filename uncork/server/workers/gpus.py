"""The check of ``--gpus`` before anything is started."""

import os
from collections.abc import Callable

from uncork.config.errors import WrongUsage
from uncork.server.options import ServeOptions
from uncork_workers.supervision.gpus import GPU_VARIABLE, gpus_here, missing_gpus


def require_gpus(options: ServeOptions, *, warn: Callable[[str], object]) -> None:
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
