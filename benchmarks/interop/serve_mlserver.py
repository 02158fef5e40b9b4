# mypy: disable-error-code="import-not-found"
"""MLServer without parallel workers: the model runs in the process that speaks HTTP.

Runs in MLServer's environment; `benchmarks/peers/servers` must be on its path.

python serve_mlserver.py --port 3000 --grpc-port 8001 --model digits --wait-ms 10
"""

import json
import os
import sys
import tempfile
from pathlib import Path

import peer_model

_MODEL = "PEER_MODEL"
_OWN_BATCH_SIZE = 32


def _model_settings(*, model: str, wait_ms: float) -> dict[str, object]:
    """Return MLServer's settings of the model; without a wait its own batching stays off."""
    found: dict[str, object] = {"name": "peer", "implementation": "mlserver_server.Peer"}
    if model == "digits":
        found["implementation"] = "mlserver_sklearn.SKLearnModel"
        found["parameters"] = {"uri": os.environ["PEER_FOREST"]}
    if wait_ms:
        found |= {"max_batch_size": _OWN_BATCH_SIZE, "max_batch_time": wait_ms / 1000}
    return found


if __name__ == "__main__":
    options = peer_model.options()
    folder = Path(tempfile.mkdtemp(prefix="interop-mlserver-"))
    server = {"host": peer_model.HOST, "http_port": options.port, "parallel_workers": 0, "debug": False}
    # 0: any free port, because MLServer always serves gRPC.
    server |= {"grpc_port": options.grpc_port, "metrics_endpoint": None, "environments_dir": str(folder)}
    (folder / "settings.json").write_text(json.dumps(server))
    model = _model_settings(model=options.model, wait_ms=options.wait_ms)
    (folder / "model-settings.json").write_text(json.dumps(model))
    # Its own command serves the folder; the environment carries the model's settings.
    command = [str(Path(sys.executable).with_name("mlserver")), "start", str(folder)]
    os.execve(command[0], command, {**os.environ, _MODEL: options.model})
