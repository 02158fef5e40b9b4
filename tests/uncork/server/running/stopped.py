"""A server that has not been started."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from uncork.server.credentials import Credentials
from uncork.server.options import ServeOptions
from uncork.server.running.service import RunningServer
from uncork.server.services import service_settings
from uncork_gateway import Gateway, GatewaySettings


def stopped(options: ServeOptions, folder: Path, **more: Any) -> RunningServer:
    """A server without services, with a gateway of its own; close its front end at the end."""
    return RunningServer(
        options=options,
        gateway=Gateway(GatewaySettings()),
        settings=lambda own, keys: GatewaySettings(**service_settings(own)),
        folder=folder,
        failed=asyncio.get_running_loop().create_future(),
        **{"credentials": Credentials(), **more},
    )
