# mypy: disable-error-code="import-not-found, untyped-decorator"
"""The library batched in a Starlette app under uvicorn, in one process, as its documentation shows.

With `timeout_ms=0` the library polls in the event loop without a pause while less than a full batch is
queued, and takes the cores from the servers that it is compared with. Its shortest wait here is therefore
1 ms.
"""

import peer_model
import uvicorn
from batched import aio
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse
from starlette.routing import Route

options = peer_model.options()
model = peer_model.load(options.model)


@aio.dynamically(batch_size=peer_model.BATCH_CAP, timeout_ms=options.wait_ms)
def run(rows: list[peer_model.Row]) -> list[float]:
    """Answer a batch; the library calls it in a thread."""
    answers: list[float] = model(rows)
    return answers


async def predict(request: Request) -> JSONResponse:
    """Answer one row."""
    # The library takes a list for a batch: a row is wrapped to be one item.
    return JSONResponse((await run([await request.json()]))[0])


async def ready(request: Request) -> PlainTextResponse:
    """Say that the model is loaded: it is before the server listens."""
    return PlainTextResponse("ready")


if __name__ == "__main__":
    app = Starlette(routes=[Route("/predict", predict, methods=["POST"]), Route("/readyz", ready)])
    uvicorn.run(app, host=peer_model.HOST, port=options.port, log_level="warning", access_log=False)
