"""Merge the bodies of several requests into the rows that the handler gets."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np

from uncork_workers.definition.adapters import Adapter, InvalidInput
from uncork_workers.plural import plural
from uncork_workers.wire.forms import (
    ColumnsForm,
    Form,
    ListForm,
    RawForm,
    TableForm,
    TensorForm,
    ValueForm,
    Wanted,
)
from uncork_workers.wire.messages import Meta


class BatchRequests(NamedTuple):
    """Some requests of a batch; every field has one value per request.

    ``costs`` (of each row of a request), ``metas``, ``raw`` (how a request gets its rows), ``parameters`` and
    ``classes`` are empty if the batch has none. Parameters that cannot be read are an InvalidInput.
    ``positions`` has the place of each request in the batch.
    """

    bodies: Sequence[bytes]
    rows: Sequence[int]
    forms: Sequence[Form]
    costs: Sequence[Sequence[float]] = ()
    metas: Sequence[Meta] = ()
    raw: Sequence[Wanted] = ()
    parameters: Sequence[Any] = ()
    classes: Sequence[str] = ()
    positions: Sequence[int] = ()

    def pick(self, group: Sequence[int]) -> BatchRequests:
        """Return the requests at some positions."""
        return BatchRequests._make([values[at] for at in group] if values else () for values in self)


def merge(adapter: Adapter, requests: BatchRequests) -> Any:
    """Merge the rows of all requests into the handler's argument, parsing bodies of one form together.

    Raises:
        InvalidInput: if at least one request is not valid.
    """
    bodies, rows, forms, *_ = requests
    if forms.count(forms[0]) < len(forms):
        groups: dict[Form, list[int]] = {}
        for at, form in enumerate(forms):
            groups.setdefault(form, []).append(at)
        parts = [merge(adapter, requests.pick(group)) for group in groups.values()]
        return _interleave([*groups.values()], parts, rows)
    match forms[0]:
        case None:
            merged = adapter.merge(bodies)
        case TensorForm() | ListForm() as form:
            merged = adapter.merge_tensors(bodies, form, rows)
        case ColumnsForm() as form:
            merged = adapter.merge_columns(bodies, form, rows)
        case TableForm(header):
            merged = adapter.merge_table(bodies, header, rows)
        case RawForm():
            merged = adapter.merge_raw(bodies, requests.metas)
        case ValueForm():
            merged = adapter.merge_values(bodies)
    if len(merged) != sum(rows):
        raise InvalidInput(f"expected {plural(sum(rows), 'row')}, got {len(merged)}")
    return merged


def _interleave(groups: Sequence[Sequence[int]], merged: Sequence[Any], counts: Sequence[int]) -> Any:
    """Restore the order of the requests.

    Args:
        groups: the positions of the requests in each group.
        merged: the rows of each group: all arrays with the same row shape, all lists, or all data frames.
        counts: the number of rows of each request, by position.
    """
    ends = list(accumulate(counts))
    first, total = merged[0], ends[-1]
    if hasattr(first, "iloc"):
        return _interleave_frames(groups, merged, counts)
    is_array = isinstance(first, np.ndarray)
    rows: Any = np.empty((total, *first.shape[1:]), first.dtype) if is_array else [None] * total
    for group, group_rows in zip(groups, merged, strict=True):
        start = 0
        for at in group:
            end = start + counts[at]
            rows[ends[at] - counts[at] : ends[at]] = group_rows[start:end]
            start = end
    return rows


def _interleave_frames(groups: Sequence[Sequence[int]], merged: Sequence[Any], counts: Sequence[int]) -> Any:
    import pandas as pd  # the service has loaded it

    numbers = [np.arange(sum(counts[at] for at in group)) for group in groups]
    starts = accumulate(map(len, numbers), initial=0)
    places = [rows + start for rows, start in zip(numbers, starts, strict=False)]
    order = _interleave(groups, places, counts)
    kinds = zip(merged[0].columns, *[part.dtypes for part in merged], strict=True)
    # pandas would join 1.5 and True as 1.5 and 1.0.
    mixed = {name: object for name, *dtypes in kinds if len(set(dtypes)) > 1}
    parts = [part.astype(mixed) if mixed else part for part in merged]
    return pd.concat(parts, ignore_index=True).take(order).reset_index(drop=True)
