"""Texts of random lengths, as bodies for the API `embed` of `services/encoder.py`."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from random import Random

import msgspec

VOCABULARY = 1000
SHORTEST, LONGEST = 8, 512
_BODIES = 1000
_MEAN, _CV = 64, 1.0
_SHORT, _LONG, _LONG_SHARE = 16, 512, 0.1
_SPREAD = 0.1


@dataclass(frozen=True, kw_only=True)
class Texts:
    """Texts of one distribution of lengths, always the same."""

    name: str
    lengths: tuple[int, ...]
    """Tokens of each."""

    def bodies(self) -> tuple[bytes, ...]:
        """Return one request per text, with random tokens and their number."""
        random = Random(1)
        return tuple(
            msgspec.json.encode({"tokens": length, "ids": random.choices(range(VOCABULARY), k=length)})
            for length in self.lengths
        )


def distributions() -> list[Texts]:
    """Return lognormal lengths, and lengths of which most are short and a tenth is long."""
    return [
        _texts(f"lognormal lengths, mean {_MEAN}, CV {_CV:g}", _lognormal),
        _texts(f"{1 - _LONG_SHARE:.0%} near {_SHORT} tokens, {_LONG_SHARE:.0%} near {_LONG}", _bimodal),
    ]


def _texts(name: str, draw: Callable[[Random], float]) -> Texts:
    random = Random(2)
    lengths = (round(draw(random)) for _ in range(_BODIES))
    return Texts(name=name, lengths=tuple(min(max(length, SHORTEST), LONGEST) for length in lengths))


def _lognormal(random: Random) -> float:
    variance = math.log(1 + _CV**2)
    return random.lognormvariate(math.log(_MEAN) - variance / 2, math.sqrt(variance))


def _bimodal(random: Random) -> float:
    mean = _LONG if random.random() < _LONG_SHARE else _SHORT
    return random.gauss(mean, _SPREAD * mean)
