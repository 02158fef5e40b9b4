"""Valid frames between gateway and workers, from which `scripts/fuzz frames` starts."""

import sys
from pathlib import Path

from uncork_workers.wire.forms import Form, RawForm, TableForm, TensorForm
from uncork_workers.wire.frames import encode_frame
from uncork_workers.wire.messages import Batch, Failed, Gpu, Gpus, Hello, Message, Ready, Reply
from uncork_workers.wire.schema import ServiceDescription

_FORMS: tuple[Form, ...] = (None, TensorForm("FP32", (2,)), TableForm("a,b"), RawForm())


def write_corpus(folder: Path) -> None:
    """Write one file for each frame."""
    messages: list[Message] = [
        Hello(index=0, pid=1, service=ServiceDescription(name="S", apis=[])),
        Ready(),
        Gpus({"0": Gpu(memory_used_bytes=5, utilization=0.5)}),
        Failed(index=0, stage="setup", message="no"),
        *(Batch(1, "predict", 8, [3, 2], [1, 1], forms=(form,)) for form in _FORMS),
        Reply(batch=1, worked=True, seconds=0.1, statuses=[200, 400], lengths=[3, 2], chunks=[(2, 0.1)]),
    ]
    for number, message in enumerate(messages):
        bodies = [b"[1]", b"[]"] if isinstance(message, Batch | Reply) else []
        (folder / str(number)).write_bytes(b"\xff" + encode_frame(message, bodies))


if __name__ == "__main__":
    write_corpus(Path(sys.argv[1]))
