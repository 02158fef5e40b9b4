# mypy: disable-error-code="import-not-found, misc"
"""KServe's server with one model, for V1, V2 and, with a port for it, gRPC. Runs in KServe's environment.

python kserve_server.py --port 3000 --grpc-port 8001 --model sleep
"""

import numpy as np
import peer_model
from kserve import InferRequest, InferResponse, Model, ModelServer
from kserve.utils.utils import get_predict_input, get_predict_response


class Peer(Model):
    """Runs the model on the rows of a request."""

    def __init__(self, *, model: peer_model.Model) -> None:
        super().__init__("peer")
        self._model = model
        self.ready = True

    def predict(
        self, payload: dict[str, object] | InferRequest, headers: dict[str, str] | None = None
    ) -> dict[str, object] | InferResponse:
        """Answer each row; a request of V1 is a dictionary."""
        answers = self._model(get_predict_input(payload).tolist())
        return get_predict_response(payload, np.asarray(answers), self.name)


if __name__ == "__main__":
    options = peer_model.options()
    server = ModelServer(
        http_port=options.port, grpc_port=options.grpc_port, enable_grpc=options.grpc_port > 0
    )
    server.start([Peer(model=peer_model.load(options.model))])
