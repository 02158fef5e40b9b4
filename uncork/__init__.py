"""Uncork: an adaptive micro-batching gateway for model services.

::

    from uncork import Service, api
    from uncork.adapters import NdArray

    class Digits(Service):
        def setup(self):
            self.model = load()

        @api(input=NdArray(dtype="float32", shape=(64,)), mb_max_latency=300)
        def predict(self, rows):              # one call per batch
            return self.model.predict(rows)

``uncork serve FILE.py:Digits --workers 2`` serves it behind a batching gateway with two workers.
"""

from importlib import import_module
from typing import TYPE_CHECKING

__all__ = [
    "BatchTimedOut",
    "Batched",
    "BatchedCollector",
    "BatchedStats",
    "Context",
    "DefinitionError",
    "DispatchError",
    "RequestShed",
    "Service",
    "WrongResultCount",
    "api",
    "batched",
    "context",
    "mount",
    "pad",
]

if TYPE_CHECKING:
    from uncork.batched_functions.collector import BatchedCollector
    from uncork.batched_functions.decorator import batched
    from uncork.batched_functions.function import Batched
    from uncork.batched_functions.queues import BatchedStats
    from uncork.mounting import mount
    from uncork_dispatcher import BatchTimedOut, DispatchError, RequestShed, WrongResultCount
    from uncork_workers.definition.service import Service, api
    from uncork_workers.process.context import Context, context
    from uncork_workers.process.padding import pad
    from uncork_workers.wire.values import DefinitionError
else:
    # The command line imports this package first, and handles signals only after that.
    _MODULES = {
        "Batched": "uncork.batched_functions.function",
        "BatchedCollector": "uncork.batched_functions.collector",
        "BatchedStats": "uncork.batched_functions.queues",
        "Context": "uncork_workers.process.context",
        "DefinitionError": "uncork_workers.wire.values",
        "Service": "uncork_workers.definition.service",
        "api": "uncork_workers.definition.service",
        "batched": "uncork.batched_functions.decorator",
        "context": "uncork_workers.process.context",
        "mount": "uncork.mounting",
        "pad": "uncork_workers.process.padding",
    }

    def __getattr__(name):
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        globals()[name] = value = getattr(import_module(_MODULES.get(name, "uncork_dispatcher")), name)
        return value

    def __dir__():
        return [*globals(), *__all__]
