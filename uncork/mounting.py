"""A service inside a Starlette or FastAPI application."""

from __future__ import annotations

import asyncio
import inspect
import math
import os
import sys
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

import typer
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Mount, Router
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from uncork.config.errors import WrongUsage
from uncork.config.option_fields import kind_of, option_parameters, parameter_info
from uncork.config.sources import Kind, Source, suggestion
from uncork.server.mounted import running_services
from uncork.server.options import ServeOptions
from uncork.server.services import services_of, with_name
from uncork_gateway.mounted import serve_mounted
from uncork_gateway.pages.nearest import problem_response
from uncork_workers.definition.service import Service

if TYPE_CHECKING:
    from uncork_gateway.front_end import FrontEnd

_METHODS = ["GET", "HEAD", "POST", "OPTIONS"]
_REST = "/{path:path}"
_SCRIPTS = ("__main__", "__mp_main__")
_KINDS: dict[type, tuple[tuple[type, ...], str]] = {
    bool: ((bool,), "True or False"),
    int: ((int,), "a whole number"),
    float: ((int, float), "a number"),
    list: ((list,), "a list of texts"),
    str: ((str,), "a text"),
}
_NOT_STARTED = (
    "the service has not started: the lifespan of the application starts it; run the application with a "
    "server that does, or in tests with TestClient as a context manager"
)


class Options(TypedDict, total=False):
    """Options of ``uncork serve`` for a mounted service; see the reference of the configuration."""

    policy: str
    mb_max_latency: float
    mb_max_batch_size: int
    gpus: str
    environment: list[str]
    warmup_seconds: float
    max_batches_per_worker: int
    max_worker_memory: str
    worker_memory_limit: str
    max_body_bytes: int
    max_queue_rows: int
    max_queue_bytes: int
    max_request_rows: int
    max_request_values: int
    fair_by: str
    drain_timeout: float
    idle_after: float
    state: bool


_KNOWN = (*Options.__annotations__, "workers")


def mount(
    app: Starlette | Router,
    service: type[Service] | str,
    *,
    prefix: str = "/models",
    workers: int | str = 1,
    admin: bool = False,
    **options: Unpack[Options],
) -> None:
    """Serve a service inside a Starlette or FastAPI application.

    ::

        app = FastAPI()
        uncork.mount(app, "digits.py:Digits", workers=2)  # POST /models/predict

    The application's lifespan starts the worker processes, and fails if none gets ready. Its middleware,
    and the dependencies of a FastAPI application or router, apply to all requests below ``prefix``.

    Args:
        app: the application, or a router that is included in one afterwards.
        service: a service class that other processes can import; or its place, as ``"MODULE:CLASS"`` or
            ``"FILE.py:CLASS"``.
        prefix: the path below which the service's routes and pages are.
        workers: the number of worker processes, or a range such as ``"1-4"``.
        admin: also serve the dashboard, and let clients load and unload the service.
        options: options of ``uncork serve``, such as ``mb_max_latency=100``.

    Raises:
        TypeError: if ``app`` or ``service`` is something else, or an option does not exist.
        ValueError: if the service cannot be imported by other processes, a value is not accepted, or another
            service has the requests below ``prefix``.
    """
    if not isinstance(app, Starlette | Router):
        raise TypeError(f"mount() takes a Starlette or FastAPI application, got {app!r}")
    if not prefix.startswith("/") or prefix.endswith("/"):
        raise ValueError(
            f"mount(): prefix must begin with / and not end in it, such as /models; got {prefix!r}"
        )
    router = app.router if isinstance(app, Starlette) else app
    taken = getattr(router, "prefix", "") + prefix  # of a FastAPI router
    if any(f"{taken}/".startswith(f"{other}/") for other in _prefixes(router.routes)):
        raise ValueError(
            f"mount(): another service has the requests below {prefix}; give each a prefix, such as /other"
        )
    target = service if isinstance(service, str) else _target_of(service)
    try:
        checked = _options(with_name(target), {**options, "workers": str(workers)})
        services_of(checked)
        if not checked.worker_count.most:
            raise WrongUsage("workers must be from 1 up, because a mounted service starts its own; got 0")
    except WrongUsage as error:
        raise ValueError(f"mount(): {error}") from None
    mounted = _Mounted(checked, admin=admin)
    _start_with(router, mounted)
    add_api_route = getattr(router, "add_api_route", None)
    if add_api_route is None:
        router.routes.append(Mount(prefix, app=mounted))
    else:
        # FastAPI applies dependencies only to routes of this kind.
        options_of_route = {"methods": _METHODS, "include_in_schema": False, "response_model": None}
        add_api_route(prefix + _REST, mounted.endpoint, **options_of_route)


def _prefixes(routes: Sequence[BaseRoute], before: str = "") -> Iterator[str]:
    """Yield the prefix of each mounted service, also in routers that FastAPI has included."""
    for route in routes:
        method = getattr(route, "endpoint", None)
        apps = getattr(route, "app", None), getattr(method, "__self__", None)
        if any(isinstance(one, _Mounted) for one in apps):
            yield before + str(vars(route)["path"]).removesuffix(_REST)
        included = getattr(route, "original_router", None)
        if included is not None:
            yield from _prefixes(included.routes, before + vars(route)["include_context"].prefix)


def _target_of(service: object) -> str:
    """Return the target by which worker processes import a service class."""
    if not isinstance(service, type) or not issubclass(service, Service):
        raise TypeError(
            f'mount() takes a subclass of uncork.Service, or a text such as "digits.py:Digits"; got '
            f"{service!r}"
        )
    module, name = service.__module__, service.__qualname__
    if module in _SCRIPTS:
        file = Path(getattr(sys.modules[module], "__file__", None) or "FILE.py").name
        raise ValueError(
            f"mount(): workers cannot import {name} from the script that runs; move it to a module of its "
            f'own, or give "{file}:{name}" and start the server below if __name__ == "__main__"'
        )
    if getattr(sys.modules.get(module), name, None) is not service:
        raise ValueError(
            f"mount(): workers cannot import {name} from {module}; define it at the top level of the module, "
            "under this name"
        )
    return f"{module}:{name}"


def _options(target: str, values: Mapping[str, Any]) -> ServeOptions:
    known = {name: one for name, one in option_parameters(ServeOptions).items() if name in _KNOWN}
    for name, value in values.items():
        if name not in known:
            raise TypeError(f"mount() has no option {name!r}; {suggestion(name, known)}")
        _check(name, value, known[name])
    # Workers import what this process can.
    path = os.pathsep.join(filter(None, sys.path))
    return ServeOptions(
        **{**values, "environment": [f"PYTHONPATH={path}", *values.get("environment", ())]},
        target=[target],
        sources={name: Source(Kind.FLAG, name) for name in values},
    )


def _check(name: str, value: object, parameter: inspect.Parameter) -> None:
    """Check a value as the command line does."""
    info = parameter_info(parameter.annotation)
    assert info is not None
    types, wanted = _KINDS[kind_of(parameter)]
    least = -math.inf if info.min is None else info.min
    is_accepted = isinstance(value, types) and (types == (bool,)) == isinstance(value, bool)
    if isinstance(value, list):
        is_accepted = is_accepted and all(isinstance(one, str) for one in value)
    if not is_accepted or (isinstance(value, int | float) and not least <= value <= (info.max or math.inf)):
        bounds = "" if info.min is None else f" from {info.min}"
        bounds += "" if info.max is None else f" to {info.max}"
        raise WrongUsage(f"{name} must be {wanted}{bounds}, got {value!r}")
    if info.callback is not None:
        try:
            info.callback(value)
        except typer.BadParameter as error:
            separator = "" if error.message.startswith("must be ") else ":"
            raise WrongUsage(f"{name}{separator} {error.message}") from None


def _start_with(router: Router, mounted: _Mounted) -> None:
    """Let the lifespan of a router run a mounted service around its own."""
    own = router.lifespan_context

    @asynccontextmanager
    async def lifespan(app: Any) -> AsyncIterator[Any]:
        async with mounted.running(), own(app) as state:
            yield state

    router.lifespan_context = lifespan


class _Mounted:
    """An ASGI application that serves a service while the lifespan of the outer application runs it."""

    def __init__(self, options: ServeOptions, *, admin: bool) -> None:
        self._options = options
        self._admin = admin
        self._loop: asyncio.AbstractEventLoop | None = None
        """The event loop in which lifespans run; None while none does."""
        self._lifespans = 0
        self._changing = asyncio.Lock()
        """Held while the service starts or ends."""
        self._service = AsyncExitStack()
        self._front_end: FrontEnd | None = None
        """Serves requests; None before the service is ready, and after its end."""

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Run the service until the block ends; of several in one event loop, until the last one ends.

        Several servers may share the loop, and a router may be included several times.

        Raises:
            RuntimeError: if it does not start, or runs already in another event loop.
        """
        loop = asyncio.get_running_loop()
        if self._loop is None:
            self._loop, self._changing = loop, asyncio.Lock()
        elif self._loop is not loop:
            raise RuntimeError("the lifespan of this application runs already, in another event loop")
        self._lifespans += 1
        failure: BaseException | None = None
        try:
            async with self._changing:
                if self._front_end is None:
                    services = running_services(self._options, admin=self._admin)
                    self._front_end = await self._service.enter_async_context(services)
            yield
        except BaseException as error:
            failure = error
            raise
        finally:
            self._lifespans -= 1
            if not self._lifespans:
                async with self._changing:
                    await self._end(failure)
            failure = None  # else its traceback refers to it

    async def _end(self, failure: BaseException | None) -> None:
        """End the service; after a failure, without waiting for requests."""
        kind, trace = (None, None) if failure is None else (type(failure), failure.__traceback__)
        try:
            await self._service.__aexit__(kind, failure, trace)
        finally:
            self._front_end = None
            if not self._lifespans:  # no other has begun meanwhile
                self._loop = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._front_end is not None:
            await serve_mounted(self._front_end, scope, receive, send)
        elif scope["type"] == "http":
            await problem_response(scope, 503, _NOT_STARTED)(scope, receive, send)

    async def endpoint(self, request: Request) -> Response:
        """Return the response of the service, for a route whose path ends in ``{path:path}``."""
        # A dependency may have read the body, which Starlette keeps here.
        return _Forwarded(self, getattr(request, "_body", None))


class _Forwarded(Response):
    """The response of an ASGI application to the request of a route that ends in ``{path:path}``.

    ``read`` is the body, if it has been received already.
    """

    def __init__(self, app: ASGIApp, read: bytes | None) -> None:
        super().__init__()
        self._app = app
        self._read = read

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path, below, outer = scope["path"], f"/{scope['path_params']['path']}", scope.get("root_path", "")
        root = path.removesuffix(below)
        if not root.startswith(outer):  # The server has cut it off.
            root = outer + root
        again = receive if self._read is None else _received_before(receive, self._read)
        await self._app({**scope, "root_path": root, "path": root + below}, again, send)


def _received_before(receive: Receive, body: bytes) -> Receive:
    """Return a function that receives a whole body, and then what follows."""
    pending = [body]

    async def receive_again() -> Message:
        return {"type": "http.request", "body": pending.pop()} if pending else await receive()

    return receive_again
