# mypy: disable-error-code="import-not-found, misc"
"""Mosec: one worker process behind its Rust server.

`max_wait_time=0` means "as --wait says", which is 10 ms unless given, so the wait is given there too.
"""

import sys

import peer_model
from mosec import Server, Worker


class Peer(Worker):
    """Runs the model on a batch."""

    def __init__(self) -> None:
        super().__init__()
        self.model = peer_model.load(peer_model.options().model)

    def forward(self, data: list[peer_model.Row]) -> list[float]:
        """Answer each row of a batch."""
        answers: list[float] = self.model(data)
        return answers


if __name__ == "__main__":
    wait_ms = round(peer_model.options().wait_ms)
    sys.argv += ["--address", peer_model.HOST, "--wait", str(wait_ms), "--log-level", "warning"]
    server = Server()
    server.append_worker(Peer, num=1, max_batch_size=peer_model.BATCH_CAP, max_wait_time=wait_ms)
    server.run()
