# mypy: disable-error-code="import-not-found"
"""No batches: Starlette under uvicorn, one call of the model for each request, in a thread."""

import peer_model
import uvicorn
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse
from starlette.routing import Route

options = peer_model.options()
model = peer_model.load(options.model)


async def predict(request: Request) -> JSONResponse:
    """Answer one row."""
    row = await request.json()
    return JSONResponse((await run_in_threadpool(model, [row]))[0])


async def ready(request: Request) -> PlainTextResponse:
    """Say that the model is loaded: it is before the server listens."""
    return PlainTextResponse("ready")


if __name__ == "__main__":
    app = Starlette(routes=[Route("/predict", predict, methods=["POST"]), Route("/readyz", ready)])
    uvicorn.run(app, host=peer_model.HOST, port=options.port, log_level="warning", access_log=False)
