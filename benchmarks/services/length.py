"""A service for large bodies: what is measured is how they get to it."""

from uncork import Service, api
from uncork.adapters import Json


class Length(Service):
    """Counts."""

    @api(input=Json())
    def length(self, texts: list[str]) -> list[int]:
        """Return the number of characters of each JSON string."""
        return [len(text) for text in texts]
