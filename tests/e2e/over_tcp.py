"""``python -m tests.e2e.over_tcp serve …``: ``uncork serve`` whose workers connect over TCP.

This is how workers on other machines connect; see :data:`tests.e2e.server.OVER_TCP`.
"""

import socket
from importlib import import_module
from typing import Any

from uncork.cli.app import main
from uncork_gateway.backends.worker_listener import WorkerPort
from uncork_workers.supervision.launcher import Dialing, over_tcp

_TOKEN = b"of these tests alone"


def _patch() -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    port = WorkerPort(listener=listener, token=_TOKEN)

    async def listen_on_tcp(service: Any, path: str, *, standby: bool = False) -> None:
        if not standby:
            service.listen_on_tcp(port)

    def dialing(socket_path: str, standby_path: str) -> Dialing:
        return over_tcp(f"127.0.0.1:{listener.getsockname()[1]}", port.launch_secret)

    placement: Any = import_module("uncork.server.workers.placement")
    services: Any = import_module("uncork_gateway.services.served_service")
    placement.over_unix, services.ServedService.listen = dialing, listen_on_tcp


if __name__ == "__main__":
    _patch()
    main()
