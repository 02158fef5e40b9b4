"""The check of ``--python`` before anything is started."""

import os
import subprocess
import sys

from uncork.config.errors import WrongUsage
from uncork.server.options import ServeOptions
from uncork_workers.wire.dialing import VERSION
from uncork_workers.wire.handshake import PROTOCOL

# Preceded by a space, as the interpreter's own start may print something before.
_ASK = (
    "from uncork_workers.wire.dialing import VERSION; from uncork_workers.wire.handshake import PROTOCOL; "
    "print('', PROTOCOL, VERSION)"
)
_LONGEST_S = 60.0


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
