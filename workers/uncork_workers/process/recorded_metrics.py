"""The metrics that a handler records in one batch."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from contextlib import suppress
from numbers import Real
from typing import NoReturn

import msgspec

from uncork_workers.wire.frames import encodable
from uncork_workers.wire.messages import (
    LABEL_NAME,
    LONGEST_LABEL,
    LONGEST_NAME,
    METRIC_NAME,
    MOST_LABELS,
    TAKEN_LABELS,
    Reply,
)

_MOST_SERIES = 100
_MOST_VALUES = 1000
_LARGEST = 1e15
_METRIC_NAME, _LABEL_NAME = re.compile(METRIC_NAME), re.compile(LABEL_NAME)

Series = tuple[str, tuple[tuple[str, str], ...]]
"""The name of a count, and its labels."""


class RecordedMetrics(msgspec.Struct):
    """Counts and observed values, in bounded numbers.

    Threads and tasks of a handler may record at any time, so what iterates over a dict copies it first.

    Attributes:
        counts: the total of each count.
        observed: the values by name.
        dropped: the number of values beyond the bounds.
    """

    counts: dict[Series, float] = {}
    observed: dict[str, list[float]] = {}
    dropped: int = 0
    _values: int = 0

    def count(self, name: str, amount: float, labels: Mapping[str, str]) -> None:
        """Add an amount to a count.

        Raises:
            ValueError: if the name, the amount or a label is not accepted.
        """
        amount = _checked(name, amount, least=0)
        if len(labels) > MOST_LABELS:
            _wrong(name, f"may have at most {MOST_LABELS} labels, got {len(labels)}")
        for label, value in labels.items():
            if not _LABEL_NAME.fullmatch(label) or len(label) > LONGEST_NAME:
                _wrong(
                    name,
                    f"has the label {label!r}; use lower-case letters, digits and _, and not "
                    f"{', '.join(TAKEN_LABELS)}",
                )
            if not isinstance(value, str) or len(value) > LONGEST_LABEL or encodable(value) != value:
                _wrong(
                    name, f"takes a str of at most {LONGEST_LABEL} characters for {label!r}, got {value!r}"
                )
        if name in self.observed:
            _wrong(name, "is observed; count another name")
        key = name, tuple(labels.items())
        total = self.counts.get(key, 0.0) + amount
        if total <= _LARGEST and (key in self.counts or len(self.counts) < _MOST_SERIES):
            self.counts[key] = total
        else:
            self.dropped += 1

    def observe(self, name: str, value: float) -> None:
        """Add a value to a histogram.

        Raises:
            ValueError: if the name or the value is not accepted.
        """
        value = _checked(name, value, least=-_LARGEST)
        if any(counted == name for counted, _ in self.counts.copy()):
            _wrong(name, "is counted; observe another name")
        if self._values < _MOST_VALUES:
            self._values += 1
            self.observed.setdefault(name, []).append(value)
        else:
            self.dropped += 1

    @property
    def is_empty(self) -> bool:
        return not (self.counts or self.observed or self.dropped)

    def added_to(self, reply: Reply) -> Reply:
        """Return a reply with these metrics."""
        return msgspec.structs.replace(
            reply,
            counts=[(name, dict(labels), total) for (name, labels), total in self.counts.copy().items()],
            observed=self.observed,
            dropped_metrics=self.dropped,
        )

    def copy(self) -> RecordedMetrics | None:
        """Return the present state for :meth:`restore`; None if nothing is recorded."""
        if self.is_empty:
            return None
        copy = RecordedMetrics()
        copy.restore(self)
        return copy

    def restore(self, state: RecordedMetrics | None) -> None:
        """Forget what was recorded after :meth:`copy` returned ``state``."""
        state = state or RecordedMetrics()
        self.counts = dict(state.counts)
        self.observed = {name: [*values] for name, values in state.observed.copy().items()}
        self.dropped, self._values = state.dropped, state._values


def _checked(name: object, value: object, *, least: float) -> float:
    """Return a number of any type as a float."""
    if not isinstance(name, str) or not _METRIC_NAME.fullmatch(name) or len(name) > LONGEST_NAME:
        raise ValueError(
            f"the name of a metric must be at most {LONGEST_NAME} lower-case letters, digits and _, begin "
            f"with a letter, and not end in _total, _count, _sum, _bucket or _created, got {name!r}"
        )
    number = math.nan
    if not isinstance(value, bool) and isinstance(value, Real):
        with suppress(OverflowError):
            number = float(value)
    if not least <= number <= _LARGEST:
        _wrong(name, f"takes a number from {least:g} to {_LARGEST:g}, got {value!r}")
    return number


def _wrong(name: str, fault: str) -> NoReturn:
    raise ValueError(f"the metric {name!r} {fault}")
