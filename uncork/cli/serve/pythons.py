"""The check of ``--python`` before anything is started."""

import subprocess
import sys

from uncork.cli.serve.options import ServeOptions
from uncork.config.errors import WrongUsage
from uncork_workers.wire.dialing import VERSION
from uncork_workers.wire.handshake import PROTOCOL

_ASK = (
    "from uncork_workers.wire.dialing import VERSION; from uncork_workers.wire.handshake import PROTOCOL; "
    "print(PROTOCOL, VERSION)"
)
_LONGEST_S = 60.0


def require_python(options: ServeOptions) -> None:
    """Refuse an interpreter whose Uncork is missing, or speaks another protocol than this one.

    Raises:
        WrongUsage: if it cannot run workers.
    """
    python = options.interpreter
    if python == sys.executable:
        return
    given = f"{options.sources['python'].name} {options.python}"
    try:
        told = subprocess.run([python, "-c", _ASK], capture_output=True, text=True, timeout=_LONGEST_S)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise WrongUsage(f"{given}: cannot be run: {error}") from None
    if told.returncode:
        reason = (told.stderr.strip().splitlines() or [f"exit code {told.returncode}"])[-1]
        raise WrongUsage(
            f"{given}: Uncork cannot be imported there ({reason}); install uncork=={VERSION} in it"
        )
    protocol, version = told.stdout.split()
    if int(protocol) != PROTOCOL:
        raise WrongUsage(
            f"{given}: its Uncork {version} speaks worker protocol {protocol}, this one ({VERSION}) speaks "
            f"{PROTOCOL}; install uncork=={VERSION} in it"
        )
