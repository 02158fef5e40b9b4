"""Models in the ONNX format, run by ONNX Runtime."""

import logging
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from uncork_workers.definition.adapters.base import Adapter
from uncork_workers.definition.adapters.ndarray import Shape
from uncork_workers.definition.models.loading import library, load
from uncork_workers.definition.models.tensors import TEXT, NamedArray, NamedTensors, Row, by_shape
from uncork_workers.definition.service import Service, api
from uncork_workers.wire.values import DefinitionError

log = logging.getLogger("uncork.worker")

# In order of preference.
_PROVIDERS = ("CUDAExecutionProvider", "CPUExecutionProvider")
# From here on, ONNX Runtime rejects models that read weights from outside their folder.
_LEAST_VERSION = (1, 24)
_DTYPES = {
    "tensor(float16)": "float16",
    "tensor(float)": "float32",
    "tensor(double)": "float64",
    "tensor(bool)": "bool",
    "tensor(string)": TEXT,
    **{f"tensor({sign}int{bits})": f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)},
}


class Input(NamedTuple):
    """An input of a model: its name, and dtype and shape of a row."""

    name: str
    dtype: str
    shape: Shape

    @property
    def zeros(self) -> Any:
        """A row of zeros, or of empty texts."""
        shape = [length or 1 for length in self.shape]
        return np.full(shape, "", object) if self.dtype == TEXT else np.zeros(shape, self.dtype)


class Signature(NamedTuple):
    """The inputs of a model, the names of its outputs, and its number of rows if that is fixed."""

    inputs: Sequence[Input]
    outputs: Sequence[str]
    rows: int | None

    @property
    def adapter(self) -> Adapter:
        if len(self.inputs) == 1 and self.inputs[0].dtype != TEXT:
            [only] = self.inputs
            return NamedArray(only.name, dtype=only.dtype, shape=only.shape)
        return NamedTensors({one.name: (one.dtype, one.shape) for one in self.inputs})

    @property
    def example(self) -> Any:
        """A row of zeros; None if the lengths of a row are open."""
        if any(None in one.shape for one in self.inputs):
            return None
        if isinstance(self.adapter, NamedArray):
            return self.inputs[0].zeros
        return {one.name: one.zeros.tolist() for one in self.inputs}


def service(path: Path) -> type[Service]:
    """Open a model, on a GPU if ONNX Runtime finds one, and return the class that serves it."""
    session = open_session(path)
    signature = signature_of(session)

    class Model(Service):
        def setup(self) -> None:
            log.info("loaded %s with %s", path.name, session.get_providers()[0])
            if signature.rows is not None:
                log.warning(
                    "%s takes exactly %d rows in each call; export it with a named first axis, such as "
                    "'batch', for batches of any size",
                    *(path.name, signature.rows),
                )

        @api(
            input=signature.adapter,
            warmup=signature.example,
            allowed_batch_sizes=None if signature.rows is None else [signature.rows],
        )
        def predict(self, rows: Any) -> dict[str, Any]:
            """Return the outputs of the model by name."""
            if isinstance(rows, np.ndarray):
                return _run(session, signature, {signature.inputs[0].name: rows})
            return _run_by_shape(session, signature, rows)

    Model.__doc__ = f"The ONNX model {path.name}."
    return Model


def open_session(path: Path) -> Any:
    """Load a model with ONNX Runtime.

    Raises:
        DefinitionError: if ONNX Runtime is missing or too old, or cannot load the model.
    """
    onnxruntime = library("onnxruntime")
    version = tuple(map(int, onnxruntime.__version__.split(".")[:2]))
    if version < _LEAST_VERSION:
        least = ".".join(map(str, _LEAST_VERSION))
        raise DefinitionError(
            f"ONNX models require onnxruntime {least} or newer, got {onnxruntime.__version__}; install it "
            "for the Python that runs the workers"
        )
    options = onnxruntime.SessionOptions()
    # Uncork sets OMP_NUM_THREADS to the worker's share of the cores; ONNX Runtime does not read it.
    options.intra_op_num_threads = int(os.environ.get("OMP_NUM_THREADS", "1"))
    # Idle threads sleep instead of taking cores from the gateway and the other workers.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    available = onnxruntime.get_available_providers()
    providers = [provider for provider in _PROVIDERS if provider in available]
    return load("ONNX Runtime", lambda: onnxruntime.InferenceSession(path, options, providers=providers))


def signature_of(session: Any) -> Signature:
    """Return the signature of a loaded model.

    Raises:
        DefinitionError: if it cannot be served in batches.
    """
    given = session.get_inputs()
    if not given:
        raise DefinitionError("the model has no inputs; export one that takes rows")
    lengths = {one.name: _first_length(one) for one in given}
    fixed = {length for length in lengths.values() if isinstance(length, int)}
    if len(fixed) > 1 or (fixed and len({*lengths.values()}) > 1):
        shown = ", ".join(f"{name!r}: {length}" for name, length in lengths.items())
        raise DefinitionError(
            "the first axis of each input must be the rows of the batch, but these axes differ "
            f"({shown}); export the model with the same named first axis for all inputs"
        )
    inputs = [Input(one.name, _dtype(one), _shape(one)) for one in given]
    outputs = [one.name for one in session.get_outputs()]
    return Signature(inputs, outputs, next(iter(fixed), None))


def _first_length(value: Any) -> int | str:
    """Return the number of rows of an input, or "any"."""
    if not value.shape:
        raise DefinitionError(
            f"input {value.name!r} is a single number, without an axis for the rows of a batch; export the "
            "model with a named first axis, such as 'batch'"
        )
    return value.shape[0] if isinstance(value.shape[0], int) else "any"


def _dtype(value: Any) -> str:
    if value.type not in _DTYPES:
        accepted = ", ".join(_DTYPES)
        raise DefinitionError(
            f"input {value.name!r} is a {value.type}; only these are accepted: {accepted}. Export the model "
            "with one of them"
        )
    return _DTYPES[value.type]


def _shape(value: Any) -> Shape:
    return tuple(length if isinstance(length, int) else None for length in value.shape[1:])


def _run(session: Any, signature: Signature, feed: dict[str, np.ndarray[Any, Any]]) -> dict[str, Any]:
    return dict(zip(signature.outputs, session.run(None, feed), strict=True))


def _run_by_shape(session: Any, signature: Signature, rows: Sequence[Row]) -> dict[str, Any]:
    """Call the model once for each shape of rows, and return its outputs in the order of the rows."""
    groups = by_shape(rows, least=signature.rows or 0)
    results = [_run(session, signature, feed) for _, feed in groups]
    if len(groups) == 1:
        return results[0]
    found: dict[str, list[Any]] = {name: [None] * len(rows) for name in signature.outputs}
    for (places, _), result in zip(groups, results, strict=True):
        for name, values in result.items():
            for at, value in zip(places, values, strict=True):
                found[name][at] = value
    return found
