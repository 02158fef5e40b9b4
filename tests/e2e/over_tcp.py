"""``python -m tests.e2e.over_tcp serve …``: ``uncork serve`` whose workers connect over TCP.

This is how workers on other machines connect; see :data:`tests.e2e.server.OVER_TCP`.
"""

import socket
from typing import Any

from uncork.cli.app import main
from uncork.cli.serve import command
from uncork_gateway.backends.worker_listener import WorkerPort
from uncork_workers.supervision.launcher import Dialing, over_tcp

_TOKEN = b"of these tests alone"


def _patch() -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    port = WorkerPort(listener=listener, token=_TOKEN)

    async def listen_on_tcp(gateway: Any, path: str, *, standby: bool = False) -> None:
        if not standby:
            await gateway.listen_on_tcp(port)

    def dialing(socket_path: str, standby_path: str) -> Dialing:
        return over_tcp(f"127.0.0.1:{listener.getsockname()[1]}", _TOKEN)

    vars(command)["over_unix"] = dialing
    setattr(command.Gateway, "listen", listen_on_tcp)


if __name__ == "__main__":
    _patch()
    main()
