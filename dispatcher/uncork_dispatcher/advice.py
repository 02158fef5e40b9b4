"""The advice of ``/status``, ``uncork check`` and ``uncork tune``: its words are in ``advice_texts.py``.

Callers decide whether an advice applies, and pass its numbers.
"""

import string
from typing import Any, NamedTuple

from uncork_dispatcher.advice_texts import TEMPLATES
from uncork_dispatcher.wording import (
    as_sentence,
    exact,
    exact_ms,
    mebibytes,
    ms,
    number,
    percent,
    plural,
    times,
)

WORTH = 1.2
"""The smallest gain in throughput for which a change of batch sizes is recommended."""


class Advice(NamedTuple):
    """A problem and what to do about it.

    Attributes:
        code: identifies the kind of advice for programs; stable.
        figures: the numbers and names in the texts.
        wrong: the problem, as a clause; ``remedy``: the change, empty if none is needed.
    """

    code: str
    figures: dict[str, Any]
    wrong: str
    remedy: str

    @property
    def clause(self) -> str:
        return f"{self.wrong}; {self.remedy}" if self.remedy else self.wrong

    @property
    def text(self) -> str:
        return as_sentence(self.clause)


def advise(key: str, /, **figures: Any) -> Advice:
    """Return an advice with its texts. ``key`` is a key of ``TEMPLATES``."""
    wrong, remedy = TEMPLATES[key]
    words = [_FORMATTER.vformat(template, (), figures) for template in (wrong, remedy)]
    return Advice(key.partition("/")[0], figures, *words)


class _Formatter(string.Formatter):
    """Formats a value by its kind: a key of ``_KINDS``, a float format, or the noun that the value counts.

    A tilde before the noun marks a measured number, which is rounded unless it is an integer.
    """

    def format_field(self, value: Any, kind: str) -> str:
        if kind in _KINDS:
            return str(_KINDS[kind](value))
        if kind.startswith("."):
            return format(value, kind)
        noun = kind.removeprefix("~")
        is_measured = kind.startswith("~") and not isinstance(value, int)
        text = number(value) if is_measured else exact(value)
        return plural(text, noun, "units of cost" if noun == "unit of cost" else "")


_FORMATTER = _Formatter()
# Times are in seconds.
_KINDS: dict[str, Any] = {
    "": str,
    "exact": exact,
    "number": number,
    "ms": ms,
    "exact_ms": exact_ms,
    "percent": percent,
    "share": lambda share: f"{100 * share:.2f} %",
    "times": times,
    "MiB": mebibytes,
}
