"""One gRPC model server behind the proxy: calls to it, and its health check."""

from __future__ import annotations

import asyncio
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import grpc
import httpx
from grpc import aio

from uncork_gateway.backends.model_servers.server import (
    CONNECT_S,
    CallStatus,
    ConnectionLost,
    NoAnswerInTime,
    Server,
    ServerResponse,
    describe,
    limited_rest_s,
)
from uncork_gateway.grpc.proxy.metadata import from_metadata, to_metadata
from uncork_gateway.grpc.statuses import Code, status_of
from uncork_gateway.headers import PUSHBACK, Header
from uncork_gateway.protocols.wire import Content

_OPTIONS = (
    # grpcio refuses answers over 4 MiB by default.
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    ("grpc.max_metadata_size", 64 * 1024),
    # Without pings, a connection whose machine has vanished would fail for 15 minutes. A server that lives
    # answers a health check every 5 s, so it gets no pings, which some servers would punish.
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.keepalive_permit_without_calls", 1),
    # The health checks decide when to try again.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1_000),
    # The time that an attempt to connect may take, whatever its name.
    ("grpc.min_reconnect_backoff_ms", round(CONNECT_S * 1000)),
    # Nothing but the given address decides where calls go, and what is repeated.
    ("grpc.enable_http_proxy", 0),
    ("grpc.service_config_disable_resolution", 1),
    ("grpc.use_local_subchannel_pool", 1),
)
# A deadline in the past ends a call before the server hears of it.
_SHORTEST_S = 0.001
# grpcio counts nanoseconds since 1970 in 64 bits. The longest time of clients in Go, 292 years, is too long.
_LONGEST_S = 1e9
_OVERLOADED = (Code.UNAVAILABLE, Code.RESOURCE_EXHAUSTED)
# An overloaded server has the same code as a message over the server's limit, perhaps of a merged call, and
# as metadata over a limit, such as an error that quotes a large row. Only the text distinguishes them. These
# texts come from gRPC's libraries for C, Go, Java and .NET, and from Uncork.
_TOO_LARGE = re.compile(
    r"larger than max|exceeds maximum size|exceeds the maximum configured message size|exceeds the limit of|"
    r"metadata size exceeds",
    re.IGNORECASE,
)
_TOO_LARGE_STATUS = 413
# How grpcio's texts begin when a call ends with its connection, or before there is one; the last one comes
# from servers that shut down.
_LOST = re.compile(
    r"failed to connect|DNS resolution failed|socket closed|connection (reset|closed|refused|timed out)|"
    r"recvmsg|sendmsg|GOAWAY received|stream removed|endpoint closing|keepalive watchdog|ping timeout|"
    r"broken pipe|cancelling all calls",
    re.IGNORECASE,
)

_CHECKS = (b"/grpc.health.v1.Health/Check", b"/inference.GRPCInferenceService/ServerReady")
# SERVING and ready: in both replies field 1 is 1.
_READY = b"\x08\x01"
# The server does not offer the check, or not to everyone.
_NO_CHECK = (Code.UNIMPLEMENTED, Code.NOT_FOUND, Code.UNAUTHENTICATED, Code.PERMISSION_DENIED)
ServerStream = aio.StreamStreamCall[bytes, bytes]


@dataclass(slots=True, eq=False, kw_only=True)
class GrpcServer(Server):
    """One gRPC server and its state.

    Attributes:
        channel: carries the calls, and reconnects by itself.
    """

    channel: aio.Channel

    async def exchange(
        self, target: bytes, content: Content, *, silence_s: float, time_left_s: float, idempotent: bool
    ) -> ServerResponse:
        """Make a unary call with a serialized message; see :meth:`Server.exchange`.

        The channel repeats a call only if the server has not seen it, so ``idempotent`` makes no difference.
        """
        loop = asyncio.get_running_loop()
        latest = loop.time() + silence_s
        method: aio.UnaryUnaryMultiCallable[bytes, bytes] = self.channel.unary_unary(target.decode())
        call = method(
            content.body,
            metadata=to_metadata(content.headers),
            timeout=_timeout(min(silence_s, max(time_left_s, _SHORTEST_S))),
        )
        try:
            body = await call
        except aio.AioRpcError as error:
            status = status_in(error.code(), error.details(), error.trailing_metadata())
            if self.is_lost(status):
                raise ConnectionLost(status.text) from error
            if status.code == Code.DEADLINE_EXCEEDED and loop.time() >= latest:
                raise NoAnswerInTime(status.text) from error
            return ServerResponse(_http_status(status), (), b"", status)
        headers = from_metadata(await call.initial_metadata())
        return ServerResponse(
            200, headers, body, CallStatus(Code.OK, "", from_metadata(await call.trailing_metadata()))
        )

    def stream(self, path: str, headers: Sequence[Header], *, timeout_s: float) -> ServerStream:
        """Begin a call of any kind, with the metadata in ``headers``; ``timeout_s`` may be infinite.

        Raises:
            BadRequest: if metadata cannot be sent.
        """
        method: aio.StreamStreamMultiCallable[bytes, bytes] = self.channel.stream_stream(path)
        return method(metadata=to_metadata(headers), timeout=_timeout(timeout_s))

    def is_lost(self, status: CallStatus) -> bool:
        """Return True if the connection, and not the server, ended the call.

        A server that reports that it is unavailable has the same code, but its connection stays.
        """
        if status.code != Code.UNAVAILABLE:
            return False
        # Another call may have connected again since, so the channel's state is not enough.
        is_connected = self.channel.get_state() is grpc.ChannelConnectivity.READY
        return not is_connected or _LOST.match(status.text) is not None

    def asked_rest_s(self, response: ServerResponse) -> float:
        """Return the pause that a server asks for with UNAVAILABLE or RESOURCE_EXHAUSTED; at most 30 s."""
        call = response.call
        if call is None or call.code not in _OVERLOADED:
            return 0.0
        pushback = next((value for name, value in call.trailers if name == PUSHBACK), b"")
        return limited_rest_s(float(pushback) / 1000) if pushback.isdigit() else 0.0

    async def check(self) -> str | None:
        """Return why the server is unhealthy, or None; ask by the first health check that the server offers.

        The checks are gRPC's health service, then the Open Inference Protocol's ServerReady. A server without
        either is healthy if it responds.
        """
        try:
            for path in _CHECKS:
                response = await self.exchange(
                    path, Content(b""), silence_s=CONNECT_S, time_left_s=math.inf, idempotent=True
                )
                assert response.call is not None
                if response.status == 200:
                    return None if response.body == _READY else f"{path.decode()} says that it is not ready"
                if response.call.code not in _NO_CHECK:
                    name = Code(response.call.code).name
                    return f"{path.decode()} returned {name}: {response.call.text}"
        except ConnectionLost as error:
            return str(error)
        except Exception as error:  # any error means no answer
            return describe(error)
        return None

    async def retire(self) -> None:
        """Leave the channel to grpcio, which closes it, but not its streams, when nothing refers to it."""

    async def close(self) -> None:
        await self.channel.close()


def grpc_servers(addresses: Sequence[httpx.URL], *, ca: Path | None = None) -> list[GrpcServer]:
    """Return the servers at ``grpc://`` and, with TLS, ``grpcs://`` addresses.

    The servers' certificates must be signed by ``ca`` (PEM), by default by an authority that grpcio trusts.
    """
    return [GrpcServer(url=str(address), channel=_channel(address, ca)) for address in addresses]


def status_in(
    code: grpc.StatusCode, text: str | None, trailers: Iterable[tuple[str, str | bytes]]
) -> CallStatus:
    number: int = code.value[0]
    return CallStatus(number, text or "", from_metadata(trailers))


def _channel(address: httpx.URL, ca: Path | None) -> aio.Channel:
    host = f"[{address.host}]" if ":" in address.host else address.host
    target = f"{host}:{address.port}"
    if address.scheme == "grpcs":
        credentials = grpc.ssl_channel_credentials(None if ca is None else ca.read_bytes())
        return aio.secure_channel(target, credentials, options=_OPTIONS)
    return aio.insecure_channel(target, options=_OPTIONS)


def _timeout(seconds: float) -> float | None:
    """Return a timeout as grpcio takes it."""
    return seconds if seconds < _LONGEST_S else None


def _http_status(status: CallStatus) -> int:
    if status.code == Code.RESOURCE_EXHAUSTED and _TOO_LARGE.search(status.text):
        return _TOO_LARGE_STATUS
    return status_of(status.code)
