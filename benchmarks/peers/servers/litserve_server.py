# mypy: disable-error-code="import-not-found, misc"
"""LitServe: one worker process on the CPU, and HTTP in a thread of the process that is started.

With `batch_timeout=0` its worker polls its queue without a pause, even when idle, and takes the cores from
the servers that it is compared with. Its shortest wait here is therefore 1 ms.
"""

import litserve
import peer_model


class Peer(litserve.LitAPI):
    """Runs the model on a batch."""

    def setup(self, device: str) -> None:
        """Load the model, in the worker."""
        self.model = peer_model.load(peer_model.options().model)

    def decode_request(self, request: dict[str, peer_model.Row]) -> peer_model.Row:
        """Find the row in a request."""
        return request["input"]

    def batch(self, inputs: list[peer_model.Row]) -> list[peer_model.Row]:
        """Make a batch of rows."""
        return inputs

    def predict(self, batch: list[peer_model.Row]) -> list[float]:
        """Answer each row of a batch."""
        answers: list[float] = self.model(batch)
        return answers

    def unbatch(self, output: list[float]) -> list[float]:
        """Take a batch of answers apart."""
        return output

    def encode_response(self, output: float) -> dict[str, float]:
        """Write an answer."""
        return {"output": output}


if __name__ == "__main__":
    options = peer_model.options()
    api = Peer(max_batch_size=peer_model.BATCH_CAP, batch_timeout=options.wait_ms / 1000)
    server = litserve.LitServer(api, accelerator="cpu", workers_per_device=1, fast_queue=True)
    server.run(
        host=peer_model.HOST,
        port=options.port,
        num_api_servers=1,
        api_server_worker_type="thread",
        generate_client_file=False,
        log_level="warning",
        access_log=False,
    )
