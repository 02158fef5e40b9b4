"""Which exceptions say that a call needed more memory than there is."""

from itertools import islice

from uncork_workers.process.batches.exception_reports import with_causes

# Classes of torch and TensorFlow, known by name so that neither is imported.
_NAMES = ("OutOfMemoryError", "ResourceExhaustedError")
# The texts of these libraries, which also raise RuntimeError. Other exceptions may quote what a client sent,
# and a client must not be able to shrink the batches of others.
_LIBRARIES = ("torch", "onnxruntime", "jax", "jaxlib", "tensorflow", "tensorrt", "cupy", "cupy_backends")
_TEXTS = (
    "out of memory",
    "ALLOC_FAILED",
    "can't allocate memory",
    "Failed to allocate memory",
    "is smaller than requested bytes",
    "RESOURCE_EXHAUSTED",
    "OOM when allocating",
    "std::bad_alloc",
)
_MOST_CAUSES = 10


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether an exception, or one of those that led to it, says that memory was short."""
    return any(_says_so(one) for one in islice(with_causes(error), _MOST_CAUSES))


def _says_so(error: BaseException) -> bool:
    kind = type(error)
    if isinstance(error, MemoryError) or any(base.__name__ in _NAMES for base in kind.__mro__):
        return True
    if kind is not RuntimeError and str(kind.__module__).partition(".")[0] not in _LIBRARIES:
        return False
    try:
        text = str(error)
    except BaseException:  # code of the library or of the service
        return False
    return any(said in text for said in _TEXTS)
