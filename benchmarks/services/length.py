"""A service for large bodies, to measure their transport."""

from uncork import Service, api
from uncork.adapters import Json


class Length(Service):
    """Counts characters."""

    @api(input=Json())
    def length(self, texts: list[str]) -> list[int]:
        """Return the number of characters of each JSON string."""
        return [len(text) for text in texts]
