"""``python -m tests.e2e.over_tcp serve …``: ``uncork serve`` whose workers connect over TCP.

This is how workers on other machines connect; see :data:`tests.e2e.server.OVER_TCP`.
"""

import socket
from contextlib import AbstractContextManager, nullcontext
from importlib import import_module
from typing import Any

from uncork.cli.app import main
from uncork_gateway.backends.worker_listener import WorkerPort
from uncork_workers.supervision.launcher import Dialing, over_tcp

_TOKEN = b"of these tests alone"


def _patch() -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    port = WorkerPort(listener=listener, token=_TOKEN)

    def open_worker_port(*_: Any, **__: Any) -> AbstractContextManager[WorkerPort]:
        return nullcontext(port)

    def dialing(socket_path: str, standby_path: str) -> Dialing:
        return over_tcp(f"127.0.0.1:{listener.getsockname()[1]}", port.launch_secret)

    placement: Any = import_module("uncork.server.workers.placement")
    service: Any = import_module("uncork.server.running.service")
    placement.over_unix, service.open_worker_port = dialing, open_worker_port


if __name__ == "__main__":
    _patch()
    main()
