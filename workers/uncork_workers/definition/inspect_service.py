"""Describe the service of a target in a separate process, as importing user code may do anything.

``python -m uncork_workers.definition.inspect_service TARGET FILE [--trust-pickle]`` writes the description,
or a text that says why there is none, to the file.
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

import msgspec

from uncork_workers.definition.loading import TargetError, load_service
from uncork_workers.definition.service import describe_service
from uncork_workers.wire.frames import encodable, plain
from uncork_workers.wire.schema import ServiceDescription


def inspect_service(
    target: str, *, trust_pickle: bool, python: str, environment: Mapping[str, str]
) -> ServiceDescription:
    """Import the service of a target in a separate process, without setting it up, and describe it.

    Args:
        target: as for ``uncork serve``, as is ``trust_pickle``.
        python: the interpreter of the process.
        environment: the variables that it has in addition to those of this process.

    Raises:
        TargetError: if the target names no service that can be served; the message says why.
    """
    with tempfile.TemporaryDirectory(prefix="uncork-") as folder:
        file = Path(folder) / "found"
        command = [python, "-m", "uncork_workers.definition.inspect_service", target, str(file)]
        command += ["--trust-pickle"] if trust_pickle else []
        process = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=sys.stderr,
            check=False,
            env={**os.environ, **environment},
        )
        if not file.exists():
            raise TargetError(f"{target} cannot be imported: the process ended with {process.returncode}")
        found = msgspec.json.decode(file.read_bytes(), type=ServiceDescription | str)
    if isinstance(found, str):
        raise TargetError(found)
    return found


def main(target: str, file: str, *flags: str) -> None:
    found: ServiceDescription | str
    try:
        found = describe_service(load_service(target, trust_pickle="--trust-pickle" in flags))
    except TargetError as error:
        found = encodable(str(error))
    Path(file).write_bytes(msgspec.json.encode(found, enc_hook=plain))


if __name__ == "__main__":
    main(*sys.argv[1:])
