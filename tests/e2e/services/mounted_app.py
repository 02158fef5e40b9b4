"""A FastAPI application with two mounted services, as its authors have it around them."""

import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Annotated

from fastapi import APIRouter, Depends, FastAPI, Header, HTTPException, Request, Response

from tests.e2e.services.leaving import Leaving
from tests.e2e.services.probe import Probe
from uncork import mount


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    """Say when the application itself runs."""
    print("the application starts", flush=True)
    yield
    print("the application ends", flush=True)


def check_key(x_key: Annotated[str, Header()] = "") -> None:
    """Refuse clients without the key."""
    if x_key != "right":
        raise HTTPException(401, "wrong key")


app = FastAPI(lifespan=lifespan)
guarded = APIRouter(prefix="/guarded", dependencies=[Depends(check_key)])
mount(app, os.environ.get("MOUNTED_TARGET", "") or Probe, admin=True, state=False)
mount(guarded, Leaving, prefix="/leaving", state=False)
app.include_router(guarded)


@app.middleware("http")
async def mark(request: Request, call_next: Callable[[Request], Awaitable[Response]]) -> Response:
    """Mark each response."""
    response = await call_next(request)
    response.headers["x-outer"] = "yes"
    return response


@app.get("/own")
async def own() -> str:
    """Return a word."""
    return "own"
