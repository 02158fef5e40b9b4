# mypy: disable-error-code="import-not-found, untyped-decorator"
"""BentoML: one service process, its own adaptive batching with the goal that Uncork has here (1000 ms).

python bentoml_server.py --port 3000 --model sleep
"""

import os
import sys
from pathlib import Path

import bentoml
import peer_model

_GOAL_MS = 1000
_MODEL = "PEER_MODEL"


# The other servers log no requests either.
@bentoml.service(workers=1, logging={"access": {"enabled": False}})
class Peer:
    """Runs the model on a batch."""

    def __init__(self) -> None:
        self.model = peer_model.load(os.environ[_MODEL])

    @bentoml.api(batchable=True, max_batch_size=peer_model.BATCH_CAP, max_latency_ms=_GOAL_MS)
    def predict(self, rows: list[list[float]]) -> list[float]:
        """Answer each row of a batch."""
        answers: list[float] = self.model(rows)
        return answers


if __name__ == "__main__":
    options = peer_model.options()
    # Its own command serves this file; the arguments go on through the environment.
    environment = {**os.environ, _MODEL: options.model, "BENTOML_DO_NOT_TRACK": "True"}
    command = [sys.executable, "-m", "bentoml", "serve", f"{Path(__file__).stem}:Peer"]
    command += ["--working-dir", str(Path(__file__).parent)]
    command += ["--host", peer_model.HOST, "--port", str(options.port)]
    os.execve(sys.executable, command, environment)
