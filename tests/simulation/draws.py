"""The choices of a schedule, each with a name, so that a failing schedule can be run without some of them."""

from collections.abc import Collection
from hashlib import blake2b
from random import Random


class Draws:
    """Makes the choices of the schedule with a seed.

    Each choice has random numbers of its own, so it does not depend on the others.

    Args:
        without: the names of what must not happen.

    Attributes:
        names: what has happened.
    """

    def __init__(self, seed: int, without: Collection[str] = ()) -> None:
        self.seed = seed
        self._without = frozenset(without)
        self.names: dict[str, None] = {}

    def random(self, name: str) -> Random:
        """Return random numbers of their own for what has this name."""
        return Random(f"{self.seed} {name}")

    def happens(self, name: str, probability: float = 1.0) -> bool:
        """Decide whether something happens."""
        if name in self._without:
            return False
        digest = blake2b(f"{self.seed} {name}".encode(), digest_size=7).digest()
        happens = int.from_bytes(digest, "big") < probability * 2**56
        if happens:
            self.names[name] = None
        return happens
