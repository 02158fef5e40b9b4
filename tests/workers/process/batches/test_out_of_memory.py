"""Which exceptions say that memory was short."""

import pytest

from uncork_workers.process.batches.out_of_memory import is_out_of_memory


def exception_class(name: str, module: str, *bases: type[Exception]) -> type[Exception]:
    return type(name, bases or (Exception,), {"__module__": module})


TORCH = exception_class("OutOfMemoryError", "torch", RuntimeError)
OWN_TORCH = exception_class("Ours", "service", TORCH)
TENSORFLOW = exception_class("ResourceExhaustedError", "tensorflow.python.framework.errors_impl")
ONNX = exception_class("Fail", "onnxruntime.capi.onnxruntime_pybind11_state")
XLA = exception_class("XlaRuntimeError", "jaxlib.xla_extension", RuntimeError)


class Mute(RuntimeError):
    def __str__(self) -> str:
        raise ValueError


Mute.__module__ = "torch"


def chained(
    error: Exception, cause: BaseException | None = None, context: Exception | None = None
) -> Exception:
    error.__cause__, error.__context__ = cause, context
    return error


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        exception_class("ArrayMemoryError", "numpy._core._exceptions", MemoryError)("Unable to allocate"),
        TORCH("CUDA out of memory. Tried to allocate 2.00 GiB"),
        OWN_TORCH(),
        TENSORFLOW("OOM when allocating tensor"),
        RuntimeError("CUDA error: out of memory"),
        RuntimeError(
            "[enforce fail at alloc_cpu.cpp:83] DefaultCPUAllocator: can't allocate memory: you tried"
        ),
        RuntimeError("CUBLAS_STATUS_ALLOC_FAILED when calling cublasCreate(handle)"),
        ONNX("[ONNXRuntimeError] : 1 : FAIL : Available memory of 1 is smaller than requested bytes of 2"),
        ONNX("bfc_arena.cc: Failed to allocate memory for requested buffer of size 8"),
        XLA("RESOURCE_EXHAUSTED: Out of memory while trying to allocate 8 bytes"),
        chained(ValueError("the model failed"), cause=MemoryError()),
        chained(ValueError("the model failed"), context=MemoryError()),
        ExceptionGroup("several", [ValueError(), MemoryError()]),
    ],
    ids=repr,
)
def test_errors_of_libraries_about_memory_are_recognised(error: Exception) -> None:
    assert is_out_of_memory(error)


@pytest.mark.parametrize(
    "error",
    [
        ValueError("CUDA out of memory"),
        KeyError("out of memory"),
        exception_class("Refused", "service", RuntimeError)("CUDA out of memory"),
        exception_class("Fail", "torchlike.errors")("out of memory"),
        RuntimeError("the client says: OUT OF MEMORY"),
        RuntimeError("CUDNN_STATUS_NOT_SUPPORTED"),
        Mute(),
        OSError(28, "No space left on device"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_others_are_not_even_if_they_quote_a_client(error: Exception) -> None:
    assert not is_out_of_memory(error)


def test_a_cycle_of_causes_ends() -> None:
    first, second = ValueError(), ValueError()
    first.__context__, second.__context__ = second, first

    assert not is_out_of_memory(first)


def test_a_long_chain_is_not_followed_to_its_end() -> None:
    error: Exception = MemoryError()
    for _ in range(20):
        error = chained(ValueError(), cause=error)

    assert not is_out_of_memory(error)
