"""Exceptions in a service: their reports, and which say that memory was short."""

import json
import logging
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from uncork_workers.definition.adapters import InvalidInput
from uncork_workers.definition.outputs.responses import WrongResult
from uncork_workers.process.batches import failures
from uncork_workers.process.batches.failures import Failure, exception_report, is_out_of_memory, reason_of
from uncork_workers.wire.messages import RowPath

HERE = Path(__file__).name


def caught(function: Callable[[], object]) -> BaseException:
    try:
        function()
    except (Exception, SystemExit) as error:
        return error
    raise AssertionError


def line_of(function: Callable[[], object]) -> int:
    return function.__code__.co_firstlineno + 1


def test_long_messages_keep_the_paths_of_their_faults() -> None:
    """A model with many choices lists them in each fault."""
    pieces = [piece for at in range(3) for piece in ("one of AA, " * 150, RowPath(0, (f"field{at}",)))]

    text, kept = reason_of(InvalidInput(*pieces))
    assert kept == pieces
    assert text == "".join(map(str, pieces))


def test_an_error_of_the_author_has_its_own_text() -> None:
    class Coded(InvalidInput):
        def __init__(self, code: int) -> None:
            super().__init__(str(code))

        def __str__(self) -> str:
            return f"bad code {self.args[0]}: see the manual"

    assert reason_of(Coded(7)) == ("bad code 7: see the manual", [])


def test_it_says_what_was_raised_and_where() -> None:
    def own() -> None:
        raise KeyError("nope")

    def in_a_library() -> None:
        json.loads("{")

    told = exception_report(caught(own))
    assert (told.error, told.message, told.place) == ("KeyError", "'nope'", f"{HERE}:{line_of(own)}")
    assert exception_report(caught(in_a_library)).place == f"{HERE}:{line_of(in_a_library)}"


def test_what_was_raised_after_the_handler_has_no_place() -> None:
    told = exception_report(WrongResult("the handler returned 1 result for 2 rows"))

    assert (told.error, told.place) == ("WrongResult", "")
    assert told.message == "the handler returned 1 result for 2 rows"


def test_a_service_that_is_installed_has_its_lines_too(monkeypatch: pytest.MonkeyPatch) -> None:
    def own() -> None:
        raise KeyError("nope")

    monkeypatch.setattr(failures, "_LIBRARIES", (str(Path(__file__).parent),))
    assert exception_report(caught(own)).place == f"{HERE}:{line_of(own)}"


def test_hints_belong_to_the_message() -> None:
    error = ValueError("no")
    error.add_note("hint: yes")

    assert exception_report(error).message == "no\nhint: yes"


class _Unspeakable(Exception):
    def __str__(self) -> str:
        raise RuntimeError


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (ValueError("x" * 2000), "x" * 499 + "…"),
        (ValueError("half of a pair: \ud800"), "half of a pair: \\ud800"),
        (_Unspeakable(), ""),
        (ValueError(), ""),
    ],
)
def test_any_message_fits_into_a_frame(error: Exception, message: str) -> None:
    told = exception_report(error)

    assert told.message == message
    msgspec.msgpack.encode(told)


def test_logs_quote_a_bounded_part_of_what_a_client_sent(caplog: pytest.LogCaptureFixture) -> None:
    """The beginning of a traceback has the handler's lines, the end has notes such as hints."""
    text = "x" * 1_000_000

    def handler() -> None:
        float(text)

    error = caught(handler)
    error.add_note("hint: send a number")
    failure = Failure(error, handler, rows=1, size=1)
    failure.log(logging.getLogger("uncork.worker"), "API predict failed")

    assert len(failure.text_of_error) == 500
    assert failure.text_of_error.startswith("ValueError(\"could not convert string to float: 'xxx")
    assert len(caplog.text) < 20_000
    assert "in handler" in caplog.text
    assert "characters ...]" in caplog.text
    assert caplog.text.endswith("hint: send a number\n")


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
