"""A PyTorch service as docs/guides/gpu.md advises, with a way to cause each fault that the page names."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import torch

from uncork import Service, api
from uncork.adapters import Json, NdArray

SIZES = [1, 2, 4]
WIDTH, CLASSES = 8, 5


class Gpu(Service):
    """Runs a small network on the first GPU that its worker sees."""

    def setup(self) -> None:
        if not torch.cuda.is_available():
            raise RuntimeError("no GPU")
        torch.manual_seed(0)
        self.model = torch.nn.Linear(WIDTH, CLASSES).to("cuda").eval()
        with torch.inference_mode():
            self.graphs = {
                rows: capture(self.model, torch.zeros((rows, WIDTH), device="cuda")) for rows in SIZES
            }

    @api(input=NdArray(dtype="float32", shape=(WIDTH,)), warmup=[0.0] * WIDTH)
    def predict(self, rows: Any) -> Any:
        with torch.inference_mode():
            return self.model(torch.from_numpy(rows).to("cuda")).cpu().numpy()

    @api(
        input=NdArray(dtype="float32", shape=(WIDTH,)),
        allowed_batch_sizes=SIZES,
        warmup=[0.0] * WIDTH,
        policy="fixed:1000",
    )
    def replay(self, rows: Any) -> Any:
        """Answer as predict does, by the graph of this batch size; other sizes raise KeyError."""
        with torch.inference_mode():
            return self.graphs[len(rows)](torch.from_numpy(rows))

    @api(input=Json(), policy="none")
    def where(self, rows: list[Any]) -> list[dict[str, Any]]:
        """Return the GPU that the worker was assigned, and the number that it sees."""
        answer = {"assigned": os.environ.get("CUDA_VISIBLE_DEVICES"), "seen": torch.cuda.device_count()}
        return [answer] * len(rows)

    @api(input=Json(), policy="fixed:1000", mb_max_batch_size=4)
    def fill(self, shares: list[float]) -> list[int]:
        """Take these shares of the GPU's memory, all at once, and return the rows of the batch."""
        total = torch.cuda.get_device_properties(0).total_memory
        torch.empty(int(sum(shares) * total), dtype=torch.uint8, device="cuda")
        # PyTorch would keep the memory in its cache, and the new workers of a reload could not allocate any.
        torch.cuda.empty_cache()
        return [len(shares)] * len(shares)

    @api(input=Json(), policy="fixed:1000", mb_max_batch_size=4)
    def look_up(self, indices: list[int]) -> list[int]:
        """Return each index from a table of ten; after any other index no CUDA call of the process works."""
        try:
            table = torch.arange(10, device="cuda")
            return table[torch.tensor(indices, device="cuda")].tolist()  # type: ignore[no-any-return]
        except torch.AcceleratorError:
            os._exit(1)


def capture(run: Callable[[Any], Any], inputs: Any) -> Callable[[Any], Any]:
    """Return a function of inputs of this shape, recorded as a CUDA graph."""
    # A first call outside the recording loads libraries, which cannot be recorded.
    side_stream = torch.cuda.Stream()
    side_stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side_stream):
        run(inputs)
    torch.cuda.current_stream().wait_stream(side_stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        outputs = run(inputs)

    def replay(batch: Any) -> Any:
        inputs.copy_(batch)
        graph.replay()
        return outputs

    return replay
