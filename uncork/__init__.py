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

from uncork_dispatcher import BatchTimedOut, DispatchError, RequestShed, WrongResultCount, batched
from uncork_workers.definition.service import Service, api
from uncork_workers.process.context import Context, context
from uncork_workers.process.padding import pad
from uncork_workers.wire.schema import DefinitionError

__all__ = [
    "BatchTimedOut",
    "Context",
    "DefinitionError",
    "DispatchError",
    "RequestShed",
    "Service",
    "WrongResultCount",
    "api",
    "batched",
    "context",
    "pad",
]
