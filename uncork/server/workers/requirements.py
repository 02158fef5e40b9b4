"""The requirements of services on this machine: interpreters and GPUs."""

import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from types import MappingProxyType

from uncork.config.errors import WrongUsage
from uncork.server.options import ServeOptions
from uncork_workers.supervision.gpus import GPU_VARIABLE, gpus_here, missing_gpus
from uncork_workers.wire.dialing import VERSION
from uncork_workers.wire.handshake import PROTOCOL

_NONE: Mapping[str, ServeOptions] = MappingProxyType({})


# Preceded by a space, as the interpreter's own start may print something before.
_ASK = (
    "from uncork_workers.wire.dialing import VERSION; from uncork_workers.wire.handshake import PROTOCOL; "
    "print('', PROTOCOL, VERSION)"
)


_LONGEST_S = 60.0


def require_resources(
    services: Mapping[str, ServeOptions],
    *,
    running: Mapping[str, ServeOptions] = _NONE,
    warn: Callable[[str], object],
) -> None:
    """Check that the interpreters and GPUs of services are there; this may start processes, and take seconds.

    Args:
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


def require_python(options: ServeOptions) -> None:
    """Refuse an interpreter without Uncork, or whose Uncork has another worker protocol than this one.

    Raises:
        WrongUsage: if it cannot run workers.
    """
    python = options.interpreter
    if python == sys.executable:
        return
    given, fix = f"{options.source_of('python')} {options.python}", f"install uncork=={VERSION} in it"
    try:
        ran = subprocess.run(
            [python, "-c", _ASK],
            capture_output=True,
            text=True,
            timeout=_LONGEST_S,
            env={**os.environ, **options.variables},
        )
    except OSError as error:
        raise WrongUsage(f"{given}: cannot be run: {error.strerror}; give a Python interpreter") from None
    except subprocess.TimeoutExpired:
        raise WrongUsage(
            f"{given}: did not import Uncork within {_LONGEST_S:g} s; give a Python interpreter"
        ) from None
    match ran.stdout.split()[-2:]:
        case [protocol, version] if not ran.returncode:
            pass
        case _:
            reason = (ran.stderr.strip().splitlines() or [f"exit code {ran.returncode}"])[-1]
            raise WrongUsage(f"{given}: Uncork cannot be imported there ({reason}); {fix}")
    if protocol != str(PROTOCOL):
        raise WrongUsage(
            f"{given}: Uncork {version} there has worker protocol {protocol}, this one ({VERSION}) has "
            f"{PROTOCOL}; {fix}"
        )
