"""One model in three FastAPI applications: called for each request, with `@batched`, and mounted."""

from typing import Annotated, Any

import numpy as np
from fastapi import Body, FastAPI

from benchmarks.harness.paths import EXAMPLES
from uncork import batched, mount
from uncork_workers.definition.loading import load_service

# Above any queueing delay: the application without batches refuses nothing either.
GOAL_MS = 10_000
_FOLDER = EXAMPLES / "digits"

Row = Annotated[list[float], Body()]


def alone() -> FastAPI:
    """Return an application that calls the model for each request, in a thread, as FastAPI does by itself."""
    app, digits = FastAPI(), _digits()

    @app.post("/predict")
    def predict(row: Row) -> int:
        return _predict(digits, [row])[0]

    return app


def with_batched() -> FastAPI:
    """Return an application that calls the model for the rows of concurrent requests."""
    app, digits = FastAPI(), _digits()

    @batched(mb_max_latency=GOAL_MS)
    def predict_all(rows: list[list[float]]) -> list[int]:
        return _predict(digits, rows)

    @app.post("/predict")
    async def predict(row: Row) -> int:
        return await predict_all(row)

    return app


def mounted() -> FastAPI:
    """Return an application that has the service below /models, with one worker."""
    app = FastAPI()
    mount(app, f"{_FOLDER / 'service.py'}:Digits", mb_max_latency=GOAL_MS, state=False)
    return app


def _digits() -> Any:
    # By its path: other examples have a module of this name too.
    digits = load_service(f"{_FOLDER / 'service.py'}:Digits")()
    digits.setup()
    return digits


def _predict(digits: Any, rows: list[list[float]]) -> list[int]:
    predicted: list[int] = digits.predict(np.asarray(rows, dtype="float32")).tolist()
    return predicted
