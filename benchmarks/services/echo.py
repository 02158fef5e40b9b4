"""A service whose handler costs nothing: what is measured is all that surrounds it."""

from uncork import Service, api
from uncork.adapters import Json


class Echo(Service):
    """Answers with what it was sent."""

    @api(input=Json())
    def echo(self, values: list[object]) -> list[object]:
        """Return the batch as it came, one JSON value per row."""
        return values
