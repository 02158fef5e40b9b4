"""A service whose handler costs nothing, to measure everything around it."""

from uncork import Service, api
from uncork.adapters import Json


class Echo(Service):
    """Returns its input."""

    @api(input=Json())
    def echo(self, values: list[object]) -> list[object]:
        """Return the batch unchanged, one JSON value per row."""
        return values
