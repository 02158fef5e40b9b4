"""The servers on the listeners of a process, on real sockets."""

from __future__ import annotations

import asyncio
import socket
import ssl
from asyncio import constants

import pytest
import trustme

from tests.gateway.proxy_stage import proxy
from tests.loops import HANG_S
from uncork.server.listeners import Listeners
from uncork.server.servers import Servers
from uncork_gateway.connection.client_limits import ClientLimits
from uncork_workers.wire.certificates import ServerTls


async def test_a_tls_handshake_has_the_time_of_a_head(monkeypatch: pytest.MonkeyPatch) -> None:
    """It counts to no limit on connections, so it must not last for the minute of asyncio."""
    monkeypatch.setattr(constants, "SSL_HANDSHAKE_TIMEOUT", 2 * HANG_S)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    trustme.CA().issue_cert("127.0.0.1").configure_cert(context)
    clients = ClientLimits(head_timeout_s=0.05)
    with socket.create_server(("127.0.0.1", 0)) as public:
        async with proxy("http://127.0.0.1:1", healthy=False, clients=clients) as on:
            listeners = Listeners(public=public, admin=None, tls=ServerTls(context))
            servers = Servers(on.proxy.front_end, listeners)
            serving = asyncio.create_task(servers.serve())
            reader, writer = await asyncio.open_connection(*public.getsockname())
            assert await reader.read() == b""
            writer.close()
            servers.exit(timeout_s=1)
            await serving
