"""A service in this process. It outlives the connections to the gateway over which it is used."""

import gc
import hashlib
import logging
import math
import os
import platform
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from uncork_workers.cores import usable_cores
from uncork_workers.definition.checks import message_of
from uncork_workers.definition.hints import adding_hints
from uncork_workers.definition.loading import load_service, service_files
from uncork_workers.definition.service import Service, describe_service
from uncork_workers.process.batches.execution import Executor
from uncork_workers.process.batches.failures import traceback_text
from uncork_workers.process.children import Stopped, WorkerCode
from uncork_workers.process.concurrent_batches import ConcurrentBatches
from uncork_workers.process.gateway_connection import GatewayConnection
from uncork_workers.process.gpu_usage import GpuUsage
from uncork_workers.process.warmup import WarmupFailed, examples_of, warm_up
from uncork_workers.wire.frames import encodable
from uncork_workers.wire.messages import Failed, Hello, Ready, Stage, WarmUp
from uncork_workers.wire.overrides import Override

log = logging.getLogger("uncork.worker")


class Settings(NamedTuple):
    """What a gateway decides about the warm-up: most seconds (0 skips it), and overrides of ``@api``."""

    warmup_seconds: float
    overrides: Sequence[Override]


class StageFailed(Exception):
    """The service cannot be set up or warmed up; ``failed`` is the message to the gateway."""

    def __init__(self, failed: Failed) -> None:
        super().__init__(failed.message)
        self.failed = failed


class HostedService:
    """A service that this process loads once, sets up once, and then runs for one gateway at a time.

    Args:
        target: as for ``load_service``, as is ``trust_pickle``.

    Raises:
        TargetError: if there is no service at the target.
    """

    def __init__(self, target: str, *, trust_pickle: bool = False) -> None:
        self._due: list[float] = []
        """When the running batches should have ended, on the monotonic clock."""
        self._gpu_usage = GpuUsage()
        self._target = target
        with WorkerCode():
            self._class = load_service(target, trust_pickle=trust_pickle)
        self._code = _digest(service_files(target))
        self._service: Service | None = None
        self._executor: Executor | None = None
        self._warmed_up: tuple[Settings, Ready] | None = None

    def hello(self, index: int, *, launch: int | None = None, host: str = "", version: str = "") -> Hello:
        return Hello(
            index=index,
            service=describe_service(self._class),
            launch=launch,
            pid=os.getpid(),
            files=list(map(encodable, service_files(self._target))),
            host=host,
            version=version,
            code=self._code,
        )

    def serve(self, gateway: GatewayConnection, index: int, settings: Settings) -> None:
        """Become ready, which takes time only at first, then execute batches until the connection ends.

        Raises:
            StageFailed: if the service cannot be set up or warmed up.
            FrameError: if the gateway sends an unexpected message.
            OSError: if the connection breaks.
        """
        executor = self._set_up(index)
        executor.sink = gateway
        self._gpu_usage.start()
        gateway.gpus = lambda: self._gpu_usage.latest
        gateway.send_ready(self._warm_up(executor, gateway, index, settings))
        if executor.concurrency:
            ConcurrentBatches(gateway, executor, self._due).serve()
            return
        if executor.staged:
            self._serve_in_stages(gateway, executor)
            return
        for message, bodies in gateway.batches():
            self._due.append(time.monotonic() + message.timeout_s)
            try:
                with WorkerCode():
                    reply, results = executor.run(message, bodies)
            finally:
                self._due.clear()
            gateway.reply(reply, results)

    def _serve_in_stages(self, gateway: GatewayConnection, executor: Executor) -> None:
        # Few services need it, and it imports the dispatcher.
        from uncork_workers.process.stages import OverlappingStages

        try:
            OverlappingStages(gateway, executor, self._due).serve()
        finally:
            self._due = []  # a thread that ends later may still note times in the list before

    @property
    def due_at(self) -> float:
        """When the first running batch should have ended, on the monotonic clock; infinity if none runs."""
        return min(self._due[:], default=math.inf)

    def close(self) -> None:
        """Tear the service down, if it was set up."""
        if self._executor is not None:
            self._executor.close()
        if self._service is None:
            return
        try:
            with WorkerCode(), adding_hints(self._service):
                self._service.teardown()
        except (KeyboardInterrupt, Stopped):
            raise
        except BaseException:
            log.exception("teardown of %s failed; the worker exits anyway", type(self._service).__name__)

    def _set_up(self, index: int) -> Executor:
        if self._executor is None:
            try:
                with WorkerCode():
                    service = self._class()
                    service.worker_index = index
                    with adding_hints(service):
                        service.setup()
            except Stopped:
                raise
            except BaseException as error:
                raise StageFailed(
                    failed(index, "setup", f"{type(error).__name__}: {message_of(error)}", error)
                ) from error
            _freeze_objects()
            self._service, self._executor = service, Executor(service)
        assert self._service is not None
        self._service.worker_index = index
        return self._executor

    def _warm_up(
        self, executor: Executor, gateway: GatewayConnection, index: int, settings: Settings
    ) -> Ready:
        """Run the warm-up, unless the last one was under the same settings; return its results."""
        if self._warmed_up is not None and self._warmed_up[0] == settings:
            return self._warmed_up[1]
        try:
            with WorkerCode():
                examples = examples_of(self._class, settings.overrides) if settings.warmup_seconds else []
                results = warm_up(
                    executor,
                    examples,
                    seconds=settings.warmup_seconds,
                    on_size=lambda api, rows: gateway.send(WarmUp(api=api, rows=rows)),
                )
        except WarmupFailed as error:
            raise StageFailed(failed(index, "warmup", str(error), error.__cause__)) from error
        _freeze_objects()
        ready = Ready(
            files=list(map(encodable, service_files(self._target))),
            profile={api: one.chunks for api, one in results.items()},
            results={api: one.result for api, one in results.items() if one.result is not None},
            limits={api: limit.most for api, limit in executor.limits.items() if limit.most < math.inf},
            surroundings=surroundings(),
        )
        self._warmed_up = settings, ready
        return ready


def failed(index: int, stage: Stage, message: str, cause: BaseException | None) -> Failed:
    """Return the message to the gateway about a stage that failed."""
    text = "" if cause is None else f"{traceback_text(cause)}\n"
    return Failed(index=index, stage=stage, message=encodable(message), traceback=encodable(text))


def _digest(files: Sequence[str]) -> str:
    digest = hashlib.sha256()
    for file in files:
        with suppress(OSError), Path(file).open("rb") as opened:
            digest.update(hashlib.file_digest(opened, "sha256").digest())
    return digest.hexdigest()


def _freeze_objects() -> None:
    """Exempt all current objects, which live as long as the worker, from garbage collection pauses."""
    gc.collect()
    gc.freeze()


_LIBRARIES = (
    "numpy",
    "scipy",
    "sklearn",
    "torch",
    "transformers",
    "xgboost",
    "lightgbm",
    "onnxruntime",
    "tensorflow",
    "jax",
)
_VARIABLES = ("CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES", "OMP_NUM_THREADS")


def surroundings() -> str:
    """Return a digest of what batch times depend on besides the code: the device, and imported libraries."""
    return hashlib.sha256("\n".join(_described()).encode()).hexdigest()


def _described() -> Iterator[str]:
    yield f"{platform.python_version()} {platform.machine()} {usable_cores()} {_cpu()}"
    yield from (f"{name}={os.environ.get(name)}" for name in _VARIABLES)
    for name in _LIBRARIES:
        if (library := sys.modules.get(name)) is not None:
            yield f"{name} {getattr(library, '__version__', '')}"
    torch = sys.modules.get("torch")
    with suppress(Exception):  # any code may call itself torch
        # Otherwise the model does not use the GPU, and asking for its name would take up memory there.
        if torch is not None and torch.cuda.is_initialized():
            yield str(torch.cuda.get_device_name())


def _cpu() -> str:
    with suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text(errors="replace").splitlines()
        return next((line for line in lines if line.startswith("model name")), "")
    return ""
