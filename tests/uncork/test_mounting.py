"""What ``mount`` accepts, and the lifespan of an application around a service."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import APIRouter, Depends, FastAPI, Request
from starlette.applications import Starlette
from starlette.routing import Router

from tests.e2e.services.probe import Probe
from tests.expected import check_texts
from tests.gateway.running import turns
from uncork import Service, mount

Application = Starlette | Router


class Outer:
    class Inner(Service):
        pass


Renamed = type("Other", (Service,), {})


def client_of(app: Any) -> httpx.AsyncClient:
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://app")


async def post(app: Any, path: str, value: Any = 1) -> httpx.Response:
    async with client_of(app) as client:
        return await client.post(path, json=value)


@asynccontextmanager
async def running(app: Starlette) -> AsyncIterator[Any]:
    """Run the lifespan of an application until the block ends, and give its state."""
    async with app.router.lifespan_context(app) as state:
        yield state


async def run_once(app: Starlette) -> None:
    async with running(app):
        pass


WRONG: list[tuple[Any, dict[str, Any]]] = [
    (Probe(), {}),
    (int, {}),
    ("digits", {}),
    ("v2=a.py:Digits", {}),
    (Outer.Inner, {}),
    (Renamed, {}),
    (Probe, {"prefix": "models"}),
    (Probe, {"prefix": "/"}),
    (Probe, {"workers": 0}),
    (Probe, {"workers": "two"}),
    (Probe, {"port": 80}),
    (Probe, {"mb_max_latencyy": 80}),
    (Probe, {"mb_max_batch_size": 0}),
    (Probe, {"max_body_bytes": 1.5}),
    (Probe, {"max_body_bytes": True}),
    (Probe, {"max_body_bytes": 10**30}),
    (Probe, {"drain_timeout": float("nan")}),
    (Probe, {"state": 1}),
    (Probe, {"gpus": 2}),
    (Probe, {"environment": "A=1"}),
    (Probe, {"environment": ["A"]}),
    (Probe, {"environment": [("A", "1")]}),
    (Probe, {"policy": "best"}),
]


def test_wrong_arguments_are_refused() -> None:
    said = []
    wrong: list[tuple[Any, Any, dict[str, Any]]] = [(FastAPI, Probe, {})]
    wrong += [(FastAPI(), service, options) for service, options in WRONG]
    for app, service, options in wrong:
        with pytest.raises((TypeError, ValueError)) as caught:
            mount(app, service, **options)
        said.append(re.sub(" at 0x[0-9a-f]+", "", f"{caught.type.__name__}: {caught.value}\n"))
    check_texts(Path(__file__).parent / "mounting.txt", "".join(said))


@pytest.mark.parametrize("make", [FastAPI, Starlette, Router, APIRouter])
def test_each_service_needs_a_prefix_of_its_own(make: type[Application]) -> None:
    """An application's own routes are its own affair: they may take other methods than POST."""
    app = make()
    if isinstance(app, FastAPI):
        app.get("/{path:path}")(lambda path: path)
    mount(app, Probe)
    for prefix in ("/models", "/models/other"):
        with pytest.raises(ValueError, match=f"another service has the requests below {prefix}"):
            mount(app, Probe, prefix=prefix)
    mount(app, Probe, prefix="/models2")


def test_a_service_of_an_included_router_has_its_prefix_too() -> None:
    app, inner = FastAPI(), APIRouter(prefix="/inner")
    mount(inner, Probe)
    app.include_router(inner, prefix="/outer")
    with pytest.raises(ValueError, match="another service has the requests below /outer/inner/models"):
        mount(app, Probe, prefix="/outer/inner/models")
    mount(app, Probe)


def test_a_class_of_the_script_that_runs_is_refused(tmp_path: Path) -> None:
    script = tmp_path / "here.py"
    script.write_text(
        "from uncork import Service, mount\n"
        "from starlette.applications import Starlette\n"
        "class Mine(Service): ...\n"
        "mount(Starlette(), Mine)\n"
    )
    ended = subprocess.run([sys.executable, script], capture_output=True, text=True, check=False)
    assert ended.returncode == 1
    assert ended.stderr.endswith(
        "ValueError: mount(): workers cannot import Mine from the script that runs; move it to a module of "
        'its own, or give "here.py:Mine" and start the server below if __name__ == "__main__"\n'
    )


@pytest.mark.parametrize("make", [Starlette, FastAPI])
async def test_without_its_lifespan_an_application_says_what_is_missing(make: type[Starlette]) -> None:
    app = make()
    mount(app, Probe)
    reply = await post(app, "/models/hasty")
    assert reply.status_code == 503
    assert reply.json()["detail"].startswith("the service has not started: the lifespan of the application")


@pytest.mark.slow
@pytest.mark.parametrize("make", [Starlette, FastAPI])
async def test_an_application_can_run_twice_with_two_services(make: type[Starlette]) -> None:
    """One after the other, as in tests of an application; its own lifespan is inside."""
    own: list[str] = []

    @asynccontextmanager
    async def lifespan(app: Any) -> AsyncIterator[dict[str, int]]:
        own.append((await post(app, "/models/hasty")).text)
        yield {"number": 7}
        own.append((await post(app, "/more/models/hasty", 2)).text)

    app = make(lifespan=lifespan)
    mount(app, Probe, state=False)
    mount(app, Probe, prefix="/more/models", state=False)
    for _ in range(2):
        async with running(app) as state:
            assert state == {"number": 7}
            first, second = await post(app, "/models/sleep", 0), await post(app, "/more/models/sleep", 0)
            assert first.json() != second.json()
            with pytest.raises(RuntimeError, match="the lifespan of this application runs already"):
                await asyncio.to_thread(asyncio.run, run_once(app))
        assert (await post(app, "/models/hasty")).status_code == 503
    assert own == ["1", "2"] * 2


@pytest.mark.slow
async def test_servers_in_one_event_loop_share_the_service() -> None:
    """The second serves as soon as it is ready, and keeps it when the first has stopped."""
    app = Starlette()
    mount(app, Probe, state=False)
    async with AsyncExitStack() as second:
        async with AsyncExitStack() as first:
            starting = asyncio.create_task(first.enter_async_context(running(app)))
            await turns()
            await second.enter_async_context(running(app))
            assert (await post(app, "/models/hasty", 3)).json() == 3
            await starting
        assert (await post(app, "/models/hasty", 4)).json() == 4
    assert (await post(app, "/models/hasty")).status_code == 503


@pytest.mark.slow
async def test_a_router_brings_its_service_into_the_application() -> None:
    router = APIRouter(prefix="/a/{tenant}")
    mount(router, f"{Path(sys.modules[Probe.__module__].__file__ or '')}:Probe", state=False, prefix="/b")
    app = FastAPI()
    app.include_router(router)
    app.include_router(router, prefix="/again")
    async with running(app):
        assert (await post(app, "/a/x/b/hasty", 3)).json() == 3
        assert (await post(app, "/again/a/x/b/hasty", 5)).json() == 5
        # The server has cut off what is outside.
        transport = httpx.ASGITransport(app, root_path="/outside")
        async with httpx.AsyncClient(transport=transport, base_url="http://app") as client:
            assert (await client.post("/a/x/b/hasty", json=4)).json() == 4
            document = (await client.get("/a/x/b/openapi.json")).json()
        assert document["servers"] == [{"url": "/outside/a/x/b"}]


@pytest.mark.slow
async def test_a_dependency_may_read_the_body() -> None:
    seen = []

    async def look(request: Request) -> None:
        seen.append(await request.json())

    app = FastAPI(dependencies=[Depends(look)])
    mount(app, Probe, state=False)
    async with running(app):
        assert (await post(app, "/models/hasty", 5)).json() == 5
    assert seen == [5]


@pytest.mark.slow
async def test_an_application_that_fails_to_start_ends_the_workers() -> None:
    async def fail() -> None:
        raise OSError("of the application")

    @asynccontextmanager
    async def lifespan(app: Any) -> AsyncIterator[None]:
        await fail()
        yield

    app = Starlette(lifespan=lifespan)
    mount(app, Probe, state=False)
    with pytest.raises(OSError, match=r"^of the application$"):
        async with running(app):
            pass
    assert (await post(app, "/models/hasty")).status_code == 503


@pytest.mark.slow
async def test_a_setting_that_no_worker_accepts_fails_the_lifespan() -> None:
    app = Starlette()
    mount(app, Probe, mb_max_latency=-1, state=False)
    with pytest.raises(RuntimeError, match=r"probe.*does not start: .*mb_max_latency.*-1"):
        async with running(app):
            pass


@pytest.mark.slow
async def test_requests_that_run_past_the_drain_are_refused() -> None:
    app = Starlette()
    mount(app, Probe, state=False, drain_timeout=0)
    async with running(app):
        asking = asyncio.create_task(post(app, "/models/sleep", 3600))
        async with client_of(app) as client:
            while 'state="busy"} 1' not in (await client.get("/models/metrics")).text:
                await turns()
    reply = await asking
    assert (reply.status_code, reply.json()["reason"]) == (503, "draining")
