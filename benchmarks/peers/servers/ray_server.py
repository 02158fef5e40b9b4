# mypy: disable-error-code="attr-defined, import-not-found, untyped-decorator"
"""Ray Serve: one replica that batches, behind one proxy."""

import signal

import peer_model
import ray
from ray import serve
from starlette.requests import Request
from starlette.responses import JSONResponse

_QUIET = {"log_level": "WARNING", "enable_access_log": False}
options = peer_model.options()


@serve.deployment(num_replicas=1, max_ongoing_requests=1024, logging_config=_QUIET)
class Peer:
    """Runs the model on a batch."""

    def __init__(self, model: str) -> None:
        self.model = peer_model.load(model)

    @serve.batch(max_batch_size=peer_model.BATCH_CAP, batch_wait_timeout_s=options.wait_ms / 1000)
    async def run(self, rows: list[peer_model.Row]) -> list[float]:
        """Answer each row of a batch."""
        answers: list[float] = self.model(rows)
        return answers

    async def __call__(self, request: Request) -> JSONResponse:
        """Answer one row."""
        return JSONResponse(await self.run(await request.json()))


if __name__ == "__main__":
    # A cluster of its own: without an address it joins one that is already running.
    ray.init("local", include_dashboard=False, num_cpus=2, configure_logging=False)
    serve.start(http_options={"host": peer_model.HOST, "port": options.port}, logging_config=_QUIET)
    serve.run(Peer.bind(options.model))
    signal.sigwait({signal.SIGTERM, signal.SIGINT})
    serve.shutdown()
    ray.shutdown()
