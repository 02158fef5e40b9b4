# mypy: disable-error-code="import-not-found, untyped-decorator"
"""PyTriton: Triton's own server and batcher in front of one Python process that runs the model."""

import signal
import sys
from types import FrameType
from typing import NoReturn

import numpy as np
import peer_model
from pytriton.decorators import batch
from pytriton.model_config import DynamicBatcher, ModelConfig, Tensor
from pytriton.triton import Triton, TritonConfig


def _stop(signal_number: int, frame: FrameType | None) -> NoReturn:
    sys.exit(0)


def main() -> None:
    """Serve until stopped."""
    # So that Triton, a process of its own, is ended too.
    signal.signal(signal.SIGTERM, _stop)
    options = peer_model.options()
    model = peer_model.load(options.model)

    @batch
    def run(rows: np.ndarray) -> dict[str, np.ndarray]:
        """Answer each row of a batch."""
        return {"answers": np.asarray(model(rows.tolist()), dtype="float64").reshape(-1, 1)}

    config = TritonConfig(
        http_address=peer_model.HOST,
        http_port=options.port,
        grpc_address=peer_model.HOST,
        grpc_port=peer_model.free_port(),
        metrics_address=peer_model.HOST,
        metrics_port=peer_model.free_port(),
    )
    batcher = DynamicBatcher(max_queue_delay_microseconds=round(options.wait_ms * 1000))
    with Triton(config=config) as triton:
        triton.bind(
            model_name="peer",
            infer_func=run,
            inputs=[Tensor(name="rows", dtype=np.float64, shape=(-1,))],
            outputs=[Tensor(name="answers", dtype=np.float64, shape=(1,))],
            config=ModelConfig(max_batch_size=peer_model.BATCH_CAP, batcher=batcher),
        )
        # Not serve(): it takes the signal for itself and leaves Triton running.
        triton.run()
        signal.pause()


if __name__ == "__main__":
    main()
