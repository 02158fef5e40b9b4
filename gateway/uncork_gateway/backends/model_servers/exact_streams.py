"""Connections to HTTP servers that close if a server sends anything but one response per request.

httpcore keeps excess bytes after a response, such as a body longer than its Content-Length, and reads them as
the response to the next request, which may be another client's. httpcore also closes an idle connection if
its stream is readable. These streams therefore count as readable after excess bytes.
"""

import ssl
from typing import Any

import httpcore
import httptools

# More than one piece of input of any event loop: the rest of a piece would wait unseen.
_READ_BYTES = 2**20
_FINAL = 200


class ExactBackend(httpcore.AnyIOBackend):
    """Opens connections for httpcore's pool."""

    async def connect_tcp(self, *args: Any, **options: Any) -> httpcore.AsyncNetworkStream:
        return _ExactStream(await super().connect_tcp(*args, **options))


class _ExactStream(httpcore.AsyncNetworkStream):
    """One connection, used for one request after the other."""

    def __init__(self, stream: httpcore.AsyncNetworkStream) -> None:
        self._stream = stream
        self._parser = httptools.HttpResponseParser(self)
        self._is_complete = True
        """True if the last response has ended by itself, not with the connection."""
        self._is_inexact = False
        """True if the server has sent more than that response, or its end is uncertain."""

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:  # noqa: ASYNC109
        data = await self._stream.read(max(max_bytes, _READ_BYTES), timeout)
        if not self._is_inexact:
            try:
                self._parser.feed_data(data)
            except (httptools.HttpParserError, httptools.HttpParserUpgrade):
                self._is_inexact = True
        return data

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:  # noqa: ASYNC109
        if self._is_complete:
            self._is_complete = False
            # The parser would wait for the body that a response to HEAD only describes.
            self._is_inexact |= buffer.startswith(b"HEAD ")
        await self._stream.write(buffer, timeout)

    async def aclose(self) -> None:
        await self._stream.aclose()

    async def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,  # noqa: ASYNC109
    ) -> httpcore.AsyncNetworkStream:
        return _ExactStream(await self._stream.start_tls(ssl_context, server_hostname, timeout))

    def get_extra_info(self, info: str) -> Any:
        if info == "is_readable" and (self._is_inexact or not self._is_complete or self._has_decrypted()):
            return True
        return self._stream.get_extra_info(info)

    def _has_decrypted(self) -> bool:
        """Return True if TLS holds decrypted input that has not been read."""
        tls = self._stream.get_extra_info("ssl_object")
        if tls is None:
            return False
        try:
            tls.read(1)
        except ssl.SSLWantReadError:
            return False
        except ssl.SSLError:
            pass
        return True

    # Called by the parser

    def on_message_begin(self) -> None:
        self._is_inexact |= self._is_complete

    def on_message_complete(self) -> None:
        self._is_complete = self._parser.get_status_code() >= _FINAL
