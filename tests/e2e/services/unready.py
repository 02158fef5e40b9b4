"""A service that can be loaded but not set up."""

from typing import Any

from uncork import Service, api
from uncork.adapters import Json


class Unready(Service):
    """Its model is missing."""

    def setup(self) -> None:
        raise OSError("no model")

    @api(input=Json())
    def predict(self, items: list[Any]) -> list[Any]:
        return items
