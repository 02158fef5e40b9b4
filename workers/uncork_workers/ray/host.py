"""The Ray actor that runs one worker process on a node."""

import asyncio
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path

from uncork_workers.ray import cluster
from uncork_workers.ray.code_shipping import unpack
from uncork_workers.supervision.processes import end_group, limiting_threads

# By then the driver has read the exit code, and kills the actor.
_LINGERS_S = 5.0


class Host:
    """Runs a worker in a subprocess, so that it starts, ends and fails as on the gateway's machine.

    The worker ends when its connection to the gateway does, and with this actor. The actor ends soon after
    the worker, even without a driver.

    Args:
        arguments: arguments of ``python -m uncork_workers``.
        environment: additional environment variables.
        digest, archive: the folder to run in, see :mod:`uncork_workers.ray.code_shipping`; empty for none.
    """

    def __init__(
        self, arguments: Sequence[str], environment: Mapping[str, str], digest: str, archive: bytes
    ) -> None:
        self._node = f"{socket.gethostname()}-{cluster.node_id()[:8]}"
        self._exit_code: Future[int] = Future()
        command = [sys.executable, "-m", "uncork_workers", *arguments]
        command += ["--node", self._node, "--parent", str(os.getpid())]
        # Nothing closes the descriptor: the copy is in use while this process lives.
        folder = unpack(archive, digest)[0] if digest else None
        # Ray sets it to the CPUs that it reserves.
        variables = limiting_threads({**os.environ, **environment}, share=1)
        threading.Thread(target=self._run, args=(command, variables, folder), daemon=True).start()

    async def node(self) -> str:
        """Return the name of this node: unique, and readable for people."""
        return self._node

    async def wait(self) -> int:
        """Return the worker's exit code when it has ended."""
        return await asyncio.wrap_future(self._exit_code)

    def _run(self, command: Sequence[str], environment: Mapping[str, str], folder: Path | None) -> None:
        """Start the worker and wait for its end.

        In one thread: the kernel kills the worker when the thread that started it ends.
        """
        try:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, cwd=folder, env=environment, start_new_session=True
            )
        except OSError as error:
            self._exit_code.set_exception(error)
        else:
            code = process.wait()
            end_group(process.pid)  # first: when the driver knows the code, it kills this process
            self._exit_code.set_result(code)
        time.sleep(_LINGERS_S)
        os._exit(0)
