# mypy: disable-error-code="import-not-found, misc"
"""MLServer: one parallel worker; its batcher is in the process that speaks HTTP, which also starts gRPC.

With --in-process, the model runs in that process, digits by MLServer's own class, and a batch has 32 rows.

python mlserver_server.py --port 3000 --wait-ms 1 --model sleep
"""

import json
import os
import sys
import tempfile
from pathlib import Path

import numpy as np
import peer_model
from mlserver import MLModel
from mlserver.codecs import NumpyCodec
from mlserver.types import InferenceRequest, InferenceResponse

_MODEL = "PEER_MODEL"


class Peer(MLModel):
    """Runs the model on a batch."""

    async def load(self) -> bool:
        """Load the model, in the worker."""
        self.model = peer_model.load(os.environ[_MODEL])
        return True

    async def predict(self, payload: InferenceRequest) -> InferenceResponse:
        """Answer each row of a batch."""
        rows = NumpyCodec.decode_input(payload.inputs[0])
        answers = np.asarray(self.model(rows.tolist()), dtype="float64")
        outputs = [NumpyCodec.encode_output(name="answers", payload=answers)]
        return InferenceResponse(model_name=self.name, outputs=outputs)


if __name__ == "__main__":
    options = peer_model.options()
    in_process = "--in-process" in sys.argv
    folder = Path(tempfile.mkdtemp(prefix="peer-mlserver-"))
    server = {"host": peer_model.HOST, "http_port": options.port, "debug": False}
    server |= {"grpc_port": options.grpc_port or peer_model.free_port(), "environments_dir": str(folder)}
    server |= {"metrics_port": peer_model.free_port(), "metrics_dir": str(folder)}
    server |= {"parallel_workers": 0, "metrics_endpoint": None} if in_process else {"parallel_workers": 1}
    (folder / "settings.json").write_text(json.dumps(server))
    model: dict[str, object] = {"name": "peer", "implementation": f"{Path(__file__).stem}.Peer"}
    if in_process and options.model == "digits":
        model["implementation"] = "mlserver_sklearn.SKLearnModel"
        model["parameters"] = {"uri": os.environ["PEER_FOREST"]}
    if options.wait_ms:  # otherwise its own batching stays off
        model["max_batch_size"] = 32 if in_process else peer_model.BATCH_CAP
        model["max_batch_time"] = options.wait_ms / 1000
    (folder / "model-settings.json").write_text(json.dumps(model))
    # Its own command serves the folder; the arguments go on through the environment.
    environment = {**os.environ, _MODEL: options.model, "PYTHONPATH": str(Path(__file__).parent)}
    command = [str(Path(sys.executable).with_name("mlserver")), "start", str(folder)]
    os.execve(command[0], command, environment)
