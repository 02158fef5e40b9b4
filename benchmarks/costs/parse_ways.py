"""Ways to parse the requests of a batch: merged as in a worker, and one by one for comparison."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

import msgspec
import numpy as np
import pandas as pd

from uncork.adapters import DataFrame, NdArray
from uncork_workers.definition.adapters.base import Adapter
from uncork_workers.definition.service import Service, api
from uncork_workers.process.batches.execution import Executor
from uncork_workers.wire.messages import Batch, TableForm

COLUMNS = ("length", "width", "height", "weight")
_HEADER = ",".join(f'"{name}"' for name in COLUMNS)
Join = Callable[[Sequence[Any]], Any]


class EachAlone(Adapter):
    """Parses every request by itself, and joins the results."""

    def __init__(self, adapter: Adapter, join: Join) -> None:
        self.kind = adapter.kind  # type: ignore[misc]
        self._adapter = adapter
        self._join = join

    def merge(self, bodies: Sequence[bytes]) -> Any:
        return self._join([self._adapter.merge([body]) for body in bodies])

    def merge_table(self, bodies: Sequence[bytes], header: str, rows: Sequence[int]) -> Any:
        pairs = zip(bodies, rows, strict=True)
        return self._join([self._adapter.merge_table([body], header, [count]) for body, count in pairs])


class ByHand(Adapter):
    """Decodes each body with msgspec, checks only its type, and stacks the results."""

    def __init__(self, kind: str, row: Any, stack: Join) -> None:
        self.kind = kind  # type: ignore[misc]
        self._decoder = msgspec.json.Decoder(row)
        self._stack = stack

    def merge(self, bodies: Sequence[bytes]) -> Any:
        return self._stack([self._decoder.decode(body) for body in bodies])


@dataclass(frozen=True, kw_only=True)
class Case:
    """One kind of body and input, and the ways to parse it; the first is the worker's."""

    title: str
    ways: dict[str, Adapter]
    write: Callable[[list[float]], bytes]
    """Writes a row as a worker receives it."""
    form: TableForm | None = None
    least_ratio: float | None = None
    """Intended gain of the merged parse over each other way, at 100 requests."""

    def bodies(self, requests: int) -> list[bytes]:
        """Return requests of one row, always the same."""
        random_ = Random(requests)
        return [self.write([round(random_.gauss(0, 1), 4) for _ in COLUMNS]) for _ in range(requests)]

    def parse(self, way: str, bodies: Sequence[bytes]) -> Callable[[], Any]:
        """Return a function that parses."""
        adapter, form = self.ways[way], self.form
        if form is None:
            return lambda: adapter.merge(bodies)
        rows = [1] * len(bodies)
        return lambda: adapter.merge_table(bodies, form.header, rows)

    def execute(self, way: str, bodies: Sequence[bytes]) -> Callable[[], list[bytes]]:
        """Return a function that parses, calls the handler and writes the answers, as a worker does."""
        executor = Executor(_service(self.ways[way])())
        batch = Batch(
            batch=1,
            api="first",
            limit_rows=len(bodies),
            lengths=list(map(len, bodies)),
            rows=[1] * len(bodies),
            forms=(self.form,),
        )
        return lambda: executor.run(batch, bodies)[1]


def _service(adapter: Adapter) -> type[Service]:
    class First(Service):
        """Does nearly nothing."""

        @api(input=adapter)
        def first(self, rows: Any) -> Any:
            """Return the first column."""
            return (rows.to_numpy() if isinstance(rows, pd.DataFrame) else rows)[:, 0]

    return First


def _frames(frames: Sequence[Any]) -> pd.DataFrame:
    joined: pd.DataFrame = pd.concat(frames, ignore_index=True)
    return joined


def _object(row: list[float]) -> bytes:
    return msgspec.json.encode(dict(zip(COLUMNS, row, strict=True)))


_FRAME = DataFrame(columns=COLUMNS)
_ARRAY = NdArray(dtype="float32", shape=(len(COLUMNS),))
CASES = (
    Case(
        title="CSV, `DataFrame`",
        ways={"merged": _FRAME, "each alone": EachAlone(_FRAME, _frames)},
        write=lambda row: (",".join(map(str, row)) + "\n").encode(),
        form=TableForm(_HEADER),
        least_ratio=20,
    ),
    Case(
        title="JSON, `DataFrame`",
        ways={
            "merged": _FRAME,
            "each alone": EachAlone(_FRAME, _frames),
            "by hand": ByHand("dataframe", dict[str, float], pd.DataFrame),
        },
        write=_object,
    ),
    Case(
        title="JSON, `NdArray`",
        ways={
            "merged": _ARRAY,
            "each alone": EachAlone(_ARRAY, np.concatenate),
            "by hand": ByHand(
                "ndarray", list[float], lambda rows: np.stack([np.array(row, "float32") for row in rows])
            ),
        },
        write=msgspec.json.encode,
        least_ratio=3,
    ),
)
