"""The clients of :mod:`uncork.testing`."""

from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Any, TypedDict, Unpack

import httpx
from anyio.from_thread import BlockingPortal, start_blocking_portal

from uncork.testing.in_memory import InMemoryTransport, read_whole, send_together
from uncork.testing.in_process import InProcess
from uncork_workers.definition.service import Service

_BASE_URL = "http://testserver"


class Overrides(TypedDict, total=False):
    """Arguments of ``@api`` that replace those of all APIs."""

    mb_max_latency: float
    mb_max_batch_size: int
    mb_max_batch_bytes: int
    policy: str
    timeout: float
    idempotent: bool


class Client(httpx.Client):
    """An ``httpx.Client`` of one service, usable from any thread; made by :func:`client`.

    Responses are read completely before they are returned.
    """

    def __init__(self, portal: BlockingPortal, transport: InMemoryTransport) -> None:
        self._to_service = _FromThreads(portal, transport)
        super().__init__(transport=self._to_service, base_url=_BASE_URL, timeout=None)

    def send_all(self, requests: Sequence[httpx.Request]) -> list[httpx.Response]:
        """Send requests made by :meth:`build_request` so that all arrive at the same time.

        Those to one API share a batch, as far as its limits and its policy allow.

        Raises:
            Exception: the exception of a handler for one of them, after all have been answered.
        """
        responses = self._to_service.handle_all(requests)
        for request, response in zip(requests, responses, strict=True):
            response.request = request
            response.read()
        return responses

    def post_all(
        self,
        url: str,
        *,
        json: Iterable[Any] | None = None,
        content: Iterable[bytes | str] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> list[httpx.Response]:
        """Send one POST for each item of ``json`` or ``content``; all arrive at the same time.

        Raises:
            Exception: as :meth:`send_all`.
            TypeError: unless exactly one of ``json`` and ``content`` is given.
        """
        return self.send_all(_posts(self, url, json, content, headers))


class AsyncClient(httpx.AsyncClient):
    """An ``httpx.AsyncClient`` of one service; made by :func:`async_client`."""

    def __init__(self, transport: InMemoryTransport) -> None:
        super().__init__(transport=transport, base_url=_BASE_URL, timeout=None)

    async def send_all(self, requests: Sequence[httpx.Request]) -> list[httpx.Response]:
        """Send requests so that all arrive at the same time, as :meth:`Client.send_all`."""
        return await send_together(requests, self.send)

    async def post_all(
        self,
        url: str,
        *,
        json: Iterable[Any] | None = None,
        content: Iterable[bytes | str] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> list[httpx.Response]:
        """Send one POST for each item, as :meth:`Client.post_all`."""
        return await self.send_all(_posts(self, url, json, content, headers))


@contextmanager
def client(
    service: type[Service], *, raise_handler_errors: bool = True, **overrides: Unpack[Overrides]
) -> Iterator[Client]:
    """Run a service in this process until the block ends, and give a client of it.

    Args:
        service: the service class.
        raise_handler_errors: raise an exception of the handler from the request that failed. If false, the
            request gets the response of a real client: 500 with the id under which the log has the traceback.
        overrides: arguments of ``@api`` for all APIs, for example ``policy="fixed:5"``.

    Entering the block waits until the service is ready. Leaving it answers the pending requests of other
    threads, and calls ``teardown``.

    Raises:
        DefinitionError: if the service is defined wrongly, or an override is out of range.
        TypeError: if ``service`` is not a service class, or an override is unknown.
        Exception: the exception of ``setup`` or ``teardown``.
    """
    _check(service, overrides)
    with start_blocking_portal(name=f"uncork gateway of {service.__name__}") as portal:
        server = portal.call(_start, service, overrides)
        transport = InMemoryTransport(server, raise_handler_errors=raise_handler_errors)
        with Client(portal, transport) as made:
            try:
                yield made
            finally:
                portal.call(server.stop)


@asynccontextmanager
async def async_client(
    service: type[Service], *, raise_handler_errors: bool = True, **overrides: Unpack[Overrides]
) -> AsyncIterator[AsyncClient]:
    """Like :func:`client`, for asyncio: the gateway runs in the current loop, handlers still in a thread.

    ::

        async with async_client(Digits) as c:
            reply = await c.post("/predict", json=[0.0] * 64)
    """
    _check(service, overrides)
    server = await _start(service, overrides)
    transport = InMemoryTransport(server, raise_handler_errors=raise_handler_errors)
    async with AsyncClient(transport) as made:
        try:
            yield made
        finally:
            await server.stop()


class _FromThreads(httpx.BaseTransport):
    """Passes requests of any thread to the thread of the gateway."""

    def __init__(self, portal: BlockingPortal, transport: InMemoryTransport) -> None:
        self._portal = portal
        self._transport = transport

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        request.read()
        return self._portal.call(self._exchange, request)

    def handle_all(self, requests: Sequence[httpx.Request]) -> list[httpx.Response]:
        for request in requests:
            request.read()
        return self._portal.call(send_together, requests, self._exchange)

    def close(self) -> None:
        self._portal.call(self._transport.aclose)

    async def _exchange(self, request: httpx.Request) -> httpx.Response:
        return await read_whole(await self._transport.handle_async_request(request))


async def _start(service: type[Service], overrides: Overrides) -> InProcess:
    server = InProcess(service, overrides)
    await server.start()
    return server


def _check(service: object, overrides: Overrides) -> None:
    if not isinstance(service, type) or not issubclass(service, Service):
        raise TypeError(f"client() takes a subclass of uncork.Service, got {service!r}")
    known = Overrides.__annotations__
    for name in overrides:
        if name not in known:
            raise TypeError(
                f"client() has no argument {name!r}; arguments of @api that it accepts are {', '.join(known)}"
            )


def _posts(
    to: httpx.Client | httpx.AsyncClient,
    url: str,
    json: Iterable[Any] | None,
    content: Iterable[bytes | str] | None,
    headers: Mapping[str, str] | None,
) -> list[httpx.Request]:
    if json is not None and content is None:
        return [_post_of_json(to, url, value, headers) for value in json]
    if content is not None and json is None:
        return [to.build_request("POST", url, content=body, headers=headers) for body in content]
    raise TypeError("post_all() takes either json or content: an iterable with one body for each request")


def _post_of_json(
    to: httpx.Client | httpx.AsyncClient, url: str, value: Any, headers: Mapping[str, str] | None
) -> httpx.Request:
    if value is not None:
        return to.build_request("POST", url, json=value, headers=headers)
    # For httpx, json=None is no body.
    request = to.build_request("POST", url, content=b"null", headers=headers)
    request.headers.setdefault("content-type", "application/json")
    return request
