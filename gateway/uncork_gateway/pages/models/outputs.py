"""The output tensors of an API, learned from its results, as handlers do not declare them."""

from collections.abc import Sequence
from contextlib import suppress

import msgspec

from uncork_gateway.dialects.base import HandlerResult
from uncork_gateway.protocols.tensor_rows import output_specs
from uncork_gateway.protocols.tensors import Tensor, TensorSpec

_OK = 200
# Reading the JSON of a result blocks the event loop for about 20 ms per megabyte.
_MOST_BYTES = 2**20


class Outputs:
    """The output tensors that V2 clients of an API receive.

    They describe the warm-up or the first response, and every V2 response since. An axis of varying length is
    -1. An output is dropped for good once a response lacks it, or has another datatype or number of axes for
    it, which the protocols cannot describe.

    Attributes:
        warm_up: the result for the author's example, as one row; None if there is none. Results of clients
            are never kept.
    """

    def __init__(self) -> None:
        self._known: tuple[TensorSpec, ...] | None = None
        self.warm_up: HandlerResult | None = None

    def known(self) -> tuple[TensorSpec, ...]:
        """Return the output tensors; empty before the first response."""
        return self._known or ()

    def saw(self, tensors: Sequence[Tensor]) -> None:
        """Learn from a response's output tensors."""
        seen = tuple([TensorSpec(tensor.name, tensor.datatype, tensor.shape[1:]) for tensor in tensors])
        if seen != self._known:
            self._learn(seen)

    def saw_warm_up(self, result: HandlerResult) -> None:
        """Learn from the result of a worker's warm-up; keep the first such result."""
        if self.warm_up is None:
            self.warm_up = result
        self.saw_results([result])

    def saw_results(self, replies: Sequence[HandlerResult]) -> None:
        """Learn from the first successful result, if no outputs are known yet."""
        if self._known is not None:
            return
        rows = (reply for reply in replies if reply.status == _OK and not reply.content_type)
        first = next(rows, None)
        if first is None:
            return
        if first.form is not None or 0 < len(first.body) <= _MOST_BYTES:
            with suppress(
                msgspec.DecodeError, UnicodeDecodeError, RecursionError
            ):  # a V2 client gets the error
                self._learn(output_specs(first.body, first.form))

    def _learn(self, seen: tuple[TensorSpec, ...]) -> None:
        if self._known is None:
            self._known = seen
            return
        by_name = {output.name: output for output in seen}
        pairs = [(one, by_name[one.name]) for one in self._known if one.name in by_name]
        self._known = tuple([_common(*pair) for pair in pairs if _are_alike(*pair)])


def _are_alike(one: TensorSpec, other: TensorSpec) -> bool:
    return one.datatype == other.datatype and len(one.shape) == len(other.shape)


def _common(one: TensorSpec, other: TensorSpec) -> TensorSpec:
    lengths = zip(one.shape, other.shape, strict=True)
    return one._replace(shape=tuple([length if length == another else -1 for length, another in lengths]))
